"""The tables of signatures have tests of their own: here there are none unless a module brings some."""

from collections.abc import Iterator

import pytest

from tests.evidence.log.reading import use_signatures


@pytest.fixture(autouse=True, scope="module")
def _no_signatures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use_signatures(patch, {})
        yield
