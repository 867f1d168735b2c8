"""A rank that is forked has only what its script has imported."""

import sys
from pathlib import Path

import pytest

from tests.runtime import warm


def test_a_script_that_forgot_an_import_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # put back afterwards
    script = tmp_path / "rank.py"
    script.write_text("import sys\nassert vars(sys.modules[__name__]) is globals()\njson.dumps(1)\n")
    with pytest.raises(NameError, match="json"):
        warm.run(str(script))
