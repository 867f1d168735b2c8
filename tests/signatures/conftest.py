"""A table that cannot be read is one mistake, not a failure of every test here."""

import pytest

from allready.errors import TableError
from allready.signatures import load


def pytest_configure() -> None:
    try:
        load()
    except TableError as error:
        raise pytest.UsageError(str(error)) from None
    except (ValueError, TypeError, AssertionError, KeyError) as error:
        raise pytest.UsageError(f"{type(error).__name__}: {error}") from None
