"""On a full disk the last report still takes the place of the one that is no longer true."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from allready.report.spare_room import MIN_SPARE_BYTES, NUM_SPARES, SpareRoom
from tests.small_disk import small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "size=1m") as folder:
        yield folder


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "ranks.log").open("ab", buffering=0) as file:
        while file.write(b"x" * 512):
            pass


def test_the_report_is_rewritten_on_a_full_disk(disk: Path) -> None:
    path = disk / "report.json"
    with SpareRoom(path) as file:
        assert file.write(b"healthy so far")
        for number in range(NUM_SPARES):
            fill(disk)
            text = f"fault {number} ".encode() * (MIN_SPARE_BYTES // 20)
            assert file.write(text)
            assert path.read_bytes() == text
        fill(disk)
        assert not file.write(b"y" * 9 * MIN_SPARE_BYTES)
        assert file.problem == "No space left on device"
        assert not path.exists()  # better none than one that is wrong
        (disk / "ranks.log").unlink()
        assert file.write(b"room again")
    assert [p.name for p in disk.iterdir()] == ["report.json"]


def test_a_longer_report_finds_more_room_than_the_one_before(disk: Path) -> None:
    path = disk / "report.json"
    with SpareRoom(path) as file:
        assert file.write(b"a" * 1000)
        assert file.write(b"b" * 70_000)
        fill(disk)
        assert file.write(b"c" * 130_000)
        assert path.read_bytes() == b"c" * 130_000


def test_the_room_is_given_back_and_where_there_is_none_writing_works(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with SpareRoom(tmp_path / "report.json") as file:
        assert file.write(b"1")
        moved = tmp_path / "report-node1.json"
        assert file.write(b"2", moved)
        file.close()
        assert file.write(b"3", moved)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert moved.read_bytes() == b"3"
    (tmp_path / "file").touch()
    nowhere = SpareRoom(tmp_path / "file" / "report.json")
    assert not nowhere.write(b"1")
    assert nowhere.problem == "Not a directory"


def test_a_folder_that_was_taken_away_is_made_again(tmp_path: Path) -> None:
    with SpareRoom(tmp_path / "job" / "report.json") as file:
        assert file.write(b"1")
        shutil.rmtree(tmp_path / "job")
        assert file.write(b"2")
        assert not file.problem
    assert (tmp_path / "job" / "report.json").read_bytes() == b"2"


@pytest.mark.parametrize("free", [24 << 10, 12 << 10, 4 << 10])
def test_on_a_disk_with_little_room_the_report_is_rewritten_as_long_as_it_fits(disk: Path, free: int) -> None:
    (disk / "fill").write_bytes(b"x" * ((1 << 20) - free))
    path = disk / "report.json"
    with SpareRoom(path) as file:
        for number in range(6):
            assert file.write(f"{number}".encode() * 4000)
            fill(disk)
            assert path.read_bytes() == f"{number}".encode() * 4000
