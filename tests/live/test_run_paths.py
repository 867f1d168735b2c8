"""Where a run's files lie, and who can read them."""

import os
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from allready.live import run_paths
from allready.live.beacon import names
from tests.cases import cases


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of /dev/shm; the folder for temporary files beside it."""
    folder, other = tmp_path / "shm", tmp_path / "tmp"
    folder.mkdir()
    other.mkdir()
    monkeypatch.setattr(run_paths, "_MEMORY", folder)
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    return folder


def test_the_run_folder_is_private_and_in_memory(memory: Path) -> None:
    folder = run_paths.make_run_dir("my job/7")
    assert folder.parent == memory
    assert folder.name.startswith("allready-my_job_7-")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert run_paths.make_run_dir("my job/7") != folder


@cases("job_id", ["", "../..", "/", "x" * 500, "名字", "a\0b"])
def test_any_job_id_gives_one_name(job_id: str, memory: Path) -> None:
    folder = run_paths.make_run_dir(job_id)
    assert folder.parent == memory
    assert folder.is_dir()
    assert len(str(folder / "control.sock")) - len(str(memory)) < 80  # of a socket's 108


def test_a_small_memory_is_left_to_the_job(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=16000, f_frsize=4096))
    assert run_paths.make_run_dir().parent == memory.parent / "tmp"


def test_a_memory_that_is_not_there_or_not_ours_is_passed_over(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, mode: int) -> bool:
        return False

    with monkeypatch.context() as patched:
        patched.setattr(os, "access", refuse)
        assert run_paths.make_run_dir().parent == memory.parent / "tmp"
    memory.rmdir()
    assert run_paths.make_run_dir().parent == memory.parent / "tmp"


def test_run_folders_are_found_newest_first(memory: Path) -> None:
    first, second = run_paths.make_run_dir("a"), run_paths.make_run_dir("b")
    os.utime(first, (1, 1))
    (memory / "allready-file").write_text("")
    (memory / "allready-link").symlink_to(first)
    (memory / "other").mkdir()
    assert run_paths.run_dirs() == (second, first)


def test_the_folder_of_a_rank_is_made_anew(tmp_path: Path) -> None:
    folder = run_paths.make_rank_dir(tmp_path, 3)
    (folder / names.CELL).write_text("of an attempt before")
    assert run_paths.make_rank_dir(tmp_path, 3) == folder == run_paths.rank_dir(tmp_path, 3)
    assert list(folder.iterdir()) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_every_file_has_its_own_name(tmp_path: Path) -> None:
    files = (names.CELL, *names.RINGS, *names.DUMPS, names.STACKS, names.CRASH)
    assert len(set(files)) == len(files)
    assert run_paths.rank_log_dir(tmp_path, 2, 1, 5) == tmp_path / "attempt2" / "node1" / "rank5"
