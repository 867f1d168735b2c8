import json
import tomllib
from pathlib import Path

import pytest

from allready.signatures import __main__ as writer
from allready.signatures import table

ONE = b"""
[[record]]
name = "one"
role = "record"
[[record.line]]
anchor = "abcd"
pattern = "abcd"
example = "abcd"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one small table."""
    (tmp_path / "nccl.toml").write_bytes(ONE)
    monkeypatch.setattr(table, "_FOLDER", tmp_path)
    return tmp_path


def test_the_copy_holds_what_the_tables_hold() -> None:
    made = json.loads(writer.copy())
    assert made["tables"] == {family: tomllib.loads(text.decode()) for family, text in table.sources().items()}


def test_a_copy_is_used_while_it_belongs_to_the_tables(folder: Path) -> None:
    marked = {"digest": table.digest(table.sources()), "tables": {"nccl": {"record": [{"name": "from the copy"}]}}}
    (folder / table.COPY).write_text(json.dumps(marked))
    assert table.tables()["nccl"]["record"][0]["name"] == "from the copy"


@pytest.mark.parametrize("stale", ['{"digest": "old", "tables": {}}', "{}"])
def test_a_stale_copy_is_not_used(folder: Path, stale: str) -> None:
    (folder / table.COPY).write_text(stale)
    assert table.tables()["nccl"]["record"][0]["name"] == "one"


def test_a_copy_is_not_needed(folder: Path) -> None:
    assert table.tables()["nccl"]["record"][0]["name"] == "one"
