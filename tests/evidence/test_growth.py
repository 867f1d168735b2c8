"""Files that are still written."""

import json
import os
import pickle
from pathlib import Path

import pytest

from allready.evidence import growth as growth_module
from allready.evidence.growth import Growth
from allready.evidence.inputs import find
from allready.evidence.read import ReadOptions, read_all
from allready.evidence.reading import Reading
from tests.evidence.test_read import COLL
from tests.evidence.test_sniff import DUMP, INFO, RAS_JSON


def following(path: Path, **options: object) -> Growth:
    return Growth(lambda: find([str(path)]), ReadOptions(**options))  # type: ignore[arg-type]


def only(readings: list[Reading]) -> Reading:
    [reading] = readings
    return reading


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_only_what_is_new_is_read_and_the_whole_is_known(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(INFO * 30)
    growth = following(path)
    assert growth.poll() == len(INFO) * 30
    assert growth.poll() == 0
    more = b"".join(COLL % n for n in range(200))
    append(path, more)
    assert growth.poll() == len(more)
    assert only(growth.readings()).op_streams[0].num_operations == 200
    whole = only(read_all(find([str(path)])))
    assert only(growth.readings()).source == whole.source
    assert repr(only(growth.readings()).processes) == repr(whole.processes)


def test_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(INFO * 3 + INFO[:20])
    growth = following(path)
    assert growth.poll() == len(INFO) * 3
    assert only(growth.readings()).source.num_lines == 3
    append(path, INFO[20:])
    growth.poll()
    assert only(growth.readings()).source.num_lines == 4


def test_new_files_and_folders_are_noticed(tmp_path: Path) -> None:
    growth = following(tmp_path)
    assert growth.poll() == 0
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "x.log").write_bytes(INFO * 3)
    assert growth.poll() > 0
    (tmp_path / "fr_0").write_bytes(pickle.dumps(DUMP, 2))
    assert growth.poll() > 0
    assert [r.source.kind for r in growth.readings()] == ["flight recorder", "log"]
    assert growth.num_files == 2


def test_an_empty_file_becomes_what_is_written_into_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    growth = following(path)
    growth.poll()
    assert only(growth.readings()).source.kind == "empty"
    path.write_bytes(INFO * 3)
    assert growth.poll()
    assert only(growth.readings()).source.kind == "log"


def test_an_answer_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "ras.json"
    path.write_text(json.dumps(RAS_JSON))
    growth = following(path)
    growth.poll()
    before = only(growth.readings())
    path.write_text(json.dumps(RAS_JSON | {"timestamp": "2026-11-20 11:50:59"}))
    os.utime(path, (1, 1))
    assert growth.poll() > 0
    assert only(growth.readings()).ras[0].time_s != before.ras[0].time_s


def test_a_log_that_is_cut_and_written_anew_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(COLL % n for n in range(300)))
    growth = following(path)
    growth.poll()
    path.write_bytes(b"".join(COLL % n for n in range(300, 310)))
    assert growth.poll() > 0
    assert only(growth.readings()).op_streams[0].num_operations == 310


def test_a_log_that_is_rotated_is_not_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(COLL % n for n in range(300)))
    growth = following(tmp_path)
    growth.poll()
    path.rename(tmp_path / "x.log.1")
    append(tmp_path / "x.log.1", COLL % 300)
    path.write_bytes(b"".join(COLL % n for n in range(301, 311)))
    growth.poll()
    counts = {r.source.path.rpartition("/")[2]: r.op_streams[0].num_operations for r in growth.readings()}
    assert counts == {"x.log": 10, "x.log.1": 301}


def test_a_file_that_vanishes_keeps_what_it_said(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(INFO * 3)
    growth = following(tmp_path)
    growth.poll()
    path.unlink()
    growth.poll()
    assert only(growth.readings()).processes


def test_a_line_without_an_end_does_not_wait_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(INFO * 3)
    growth = following(path)
    growth.poll()
    append(path, b"x" * 300_000)
    assert growth.poll() == 300_000
    append(path, b"y" * 10)
    assert growth.poll() == 0


@pytest.mark.thorough
def test_what_is_kept_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth_module, "_MEMORY_BYTES", 1 << 16)
    path = tmp_path / "x.log"
    path.touch()
    growth = following(path)
    sizes = []
    for round_ in range(12):
        append(path, b"".join(b"gpu01:7:%d [0] a.cc:1 NCCL WARN odd thing %x\n" % (7, n) for n in range(4_000)))
        growth.poll()
        if round_ in {3, 11}:
            sizes.append(len(pickle.dumps([f.scanned for f in growth._files.values()])))
    assert sizes[1] < sizes[0] * 1.5
    assert only(growth.readings()).source.num_lines == 48_000


def test_only_kinds_that_were_asked_for_are_followed(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(INFO * 3)
    (tmp_path / "fr_0").write_bytes(pickle.dumps(DUMP, 2))
    growth = following(tmp_path, kinds=frozenset({"flight recorder"}))
    growth.poll()
    assert [r.source.kind for r in growth.readings()] == ["flight recorder"]


def test_the_number_of_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth_module, "MAX_FILES", 3)
    for n in range(6):
        (tmp_path / f"{n}.log").write_bytes(INFO)
    growth = following(tmp_path)
    growth.poll()
    assert growth.num_files == 3
    assert any("only the first 3 files" in (r.source.problem or "") for r in growth.readings())
