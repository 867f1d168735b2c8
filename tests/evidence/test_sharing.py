"""Many small files: what their readings and their report take."""

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from allready.evidence import digest as digests
from allready.evidence import read
from allready.evidence.inputs import find
from allready.evidence.reading import Reading
from allready.evidence.sharing import Shared
from allready.model import ProcessRecord, RankRow, RunEvidence

NUM = 400
MAX_BYTES = 1_800
"""Of one log of a line.  Without sharing it takes twice as much, and 100,000 of them over 300 MB."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(NUM):
        line = f"gpu{i // 8:05d}:{i + 1}:1 [0] NCCL WARN Connect to 10.0.0.1<33549> failed : No route to host\n"
        (tmp_path / f"nccl.node{i // 8}.{i}.log").write_text(line)
    return tmp_path


def read_in(folder: Path) -> list[Reading]:
    """As it comes from a worker, where nothing is the same object."""
    read_ones = read.read_all(find([str(folder)]), workers=1)
    return [read.unpacked(read.packed(reading)) for reading in read_ones]


@pytest.mark.thorough
def test_equal_parts_of_readings_are_kept_once_and_the_readings_stay_equal(folder: Path) -> None:
    alone, together = read_in(folder), read_in(folder)
    shared = Shared()
    for reading in together:
        shared.put_into(reading)
    empty = {name for name in Reading.__struct_fields__ if not getattr(alone[0], name)}
    for one, other in zip(alone, together, strict=True):
        assert all(getattr(one, name) == getattr(other, name) for name in set(Reading.__struct_fields__) - empty)
        assert not any(getattr(other, name) for name in empty)
        assert other.events[0].origin.source is other.source.path
    assert together[0].events[0].values is together[-1].events[0].values
    assert together[0].events[0].text is together[-1].events[0].text


@pytest.mark.thorough
def test_a_small_log_among_many_takes_little(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_FEW", 0)
    packed = [read.packed(reading) for reading in read_in(folder)]
    results = read._Results()
    tracemalloc.start()
    try:
        for index, one in enumerate(packed):
            results.add(index, read.unpacked(one))
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(results.readings()) == NUM
    assert taken_bytes / NUM < MAX_BYTES


def test_rows_beyond_those_that_a_report_has_are_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Counter[str]()
    row = digests._row

    def counted(*args: Any) -> RankRow:
        made["rows"] += 1
        return row(*args)

    monkeypatch.setattr(digests, "_row", counted)
    run = RunEvidence(processes=tuple(ProcessRecord(host=f"h{i}", pid=i) for i in range(digests.MAX_ROWS + 500)))
    assert len(digests.digest(run).ranks) == made["rows"] == digests.MAX_ROWS
