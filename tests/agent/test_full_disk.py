"""A report folder that takes nothing costs files and one line for each kind of loss, never the job or its verdict."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.jobs import Job, Node, wait_for
from tests.small_disk import small_disk

FAILS = """
import os, pathlib, sys, time
here = pathlib.Path(os.environ["GO"])
here.with_name(f"ready{os.environ['RANK']}").touch()
while not here.exists(): time.sleep(0.05)
print("rank", os.environ["RANK"], "is here", flush=True)
sys.exit(3 if os.environ["RANK"] == "1" else 0)
"""
MOUNTED_BYTES = 64 << 10
AS_A_USER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.getuid() == 0 else ()
"""Permissions bind root only without these."""


def started(job: Job, folder: Path, *, under: Sequence[str] = ()) -> Node:
    """Rank 1 will fail as soon as `go` is there."""
    env = {"GO": str(job.folder / "go")}
    return job.start("--report-dir", str(folder), "--nproc-per-node", "2", job.script(FAILS), env=env, under=under)


def ready(job: Job) -> bool:
    return all((job.folder / f"ready{rank}").exists() for rank in (0, 1))


def go(job: Job) -> None:
    (job.folder / "go").touch()


def our_lines(node: Node) -> list[str]:
    mark = "allready run: "
    return [line.removeprefix(mark) for line in node.err.splitlines() if line.startswith(mark)]


def lines_with(node: Node, words: str) -> list[str]:
    return [line for line in our_lines(node) if words in line]


def ended_with_its_verdict(node: Node) -> None:
    """Whatever became of the files."""
    assert node.wait() == 3
    assert {"[rank0] rank 0 is here", "[rank1] rank 1 is here"} <= set(node.out.splitlines())
    assert re.search(r"FAULT: DTH004 rank 1 \([^)]+\) exited with code 3", node.err)
    assert "Traceback" not in node.err
    assert " WARNING " not in node.err


def lost_all(node: Node, folder: Path, reason: str) -> None:
    """One line for each loss, and none that names a file that is not there."""
    assert len(lines_with(node, f"report.json cannot be written: {reason}; its verdict stands only here")) == 1
    assert len(lines_with(node, f"evidence of this node is not kept: {reason}")) == 1
    assert not lines_with(node, "report.html")
    last = our_lines(node)[-1]
    assert re.search(r"\(DTH004 DEAD\): rank 1 \([^)]+\) exited with code 3", last)
    assert "; no report of the end was written: " + reason in last
    assert not (folder / "report.json").is_file()


@pytest.mark.parametrize(
    ("options", "free"), [("size=64k", 4 << 10), ("size=64k", 0), ("size=64k,nr_inodes=2", 0)],
    ids=["4 KiB free", "full", "no inode free"],
)  # fmt: skip
def test_on_a_full_disk_the_verdict_stands_on_the_terminal(job: Job, options: str, free: int) -> None:
    with small_disk(job.folder / "disk", options) as disk:
        (disk / "fill").write_bytes(b"x" * (MOUNTED_BYTES - free))
        go(job)
        node = started(job, disk / "report")
        ended_with_its_verdict(node)
        lost_all(node, disk / "report", "No space left on device")
        assert len(lines_with(node, "output of a rank is not saved: No space left on device")) == 1


@pytest.mark.slow
def test_where_there_is_room_for_the_report_and_not_for_the_page_the_report_is_there(job: Job) -> None:
    with small_disk(job.folder / "disk", "size=64k") as disk:
        (disk / "fill").write_bytes(b"x" * (36 << 10))
        go(job)
        node = started(job, disk / "report")
        node.report_dir = disk / "report"
        ended_with_its_verdict(node)
        report = node.report()
        assert (report["verdict"]["code"], report["job"]["exit_code"]) == ("DTH004", 3)
        assert len(lines_with(node, "report.html cannot be written: No space left on device; report.json has")) == 1
        assert not lines_with(node, "report.json cannot be written")
        assert our_lines(node)[-1].endswith(f"; report: {disk}/report/report.json")
        assert not (disk / "report" / "report.html").exists()


@pytest.mark.slow
def test_a_disk_that_has_room_again_has_the_report_and_the_last_line_names_it(job: Job) -> None:
    with small_disk(job.folder / "disk", "size=1m") as disk:
        (disk / "fill").write_bytes(b"x" * (1 << 20))
        node = started(job, disk / "report")
        node.report_dir = disk / "report"
        wait_for(lambda: ready(job), 60.0)
        (disk / "fill").unlink()
        go(job)
        ended_with_its_verdict(node)
        assert node.report()["verdict"]["code"] == "DTH004"
        assert our_lines(node)[-1].endswith(f"; report: {disk}/report/report.html")
        assert (disk / "report" / "report.html").is_file()


def test_a_folder_that_disappears_is_made_again(job: Job) -> None:
    node = started(job, job.folder / "gone")
    node.report_dir = job.folder / "gone"
    wait_for(lambda: ready(job), 60.0)
    shutil.rmtree(job.folder / "gone")
    go(job)
    ended_with_its_verdict(node)
    assert node.report()["verdict"]["code"] == "DTH004"
    assert our_lines(node)[-1].endswith(f"; report: {job.folder}/gone/report.html")


@pytest.mark.slow
def test_a_folder_that_disappears_and_cannot_be_made_again(job: Job) -> None:
    node = started(job, job.folder / "gone")
    wait_for(lambda: ready(job), 60.0)
    shutil.rmtree(job.folder / "gone")
    (job.folder / "gone").touch()
    go(job)
    ended_with_its_verdict(node)
    lost_all(node, job.folder / "gone", "Not a directory")


@pytest.mark.slow
def test_a_path_that_is_too_long_for_the_files_below_it(job: Job) -> None:
    folder = job.folder
    while len(str(folder)) < 3900:
        folder /= "d" * 100
    folder /= "e" * (4084 - len(str(folder)) - 1)
    go(job)
    node = started(job, folder)
    ended_with_its_verdict(node)
    lost_all(node, job.folder / "none", "File name too long")  # a reason that the long path behind it does not push out


def test_a_folder_on_a_read_only_file_system_is_refused_before_any_rank_starts(job: Job) -> None:
    with small_disk(job.folder / "disk", "size=64k") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        node = started(job, disk / "report")
        assert node.wait() == 2
        assert our_lines(node) == [f"--report-dir {disk}/report: Read-only file system"]
        assert not ready(job)


@pytest.mark.slow
def test_a_folder_that_may_no_longer_be_written(job: Job) -> None:
    folder = job.folder / "report"
    folder.mkdir()
    node = started(job, folder, under=AS_A_USER)
    wait_for(lambda: ready(job), 60.0)
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o500)
    try:
        go(job)
        ended_with_its_verdict(node)
    finally:
        for path in folders:
            path.chmod(0o700)
    assert len(lines_with(node, "evidence of this node is not kept: Permission denied")) == 1
    assert "; no report of the end was written: Permission denied" in our_lines(node)[-1]
    assert not (folder / "report.html").exists()


def test_ctrl_c_on_a_full_disk_ends_in_order(job: Job) -> None:
    with small_disk(job.folder / "disk", "size=64k") as disk:
        (disk / "fill").write_bytes(b"x" * MOUNTED_BYTES)
        node = started(job, disk / "report")
        wait_for(lambda: ready(job), 60.0)
        node.process.send_signal(signal.SIGINT)
        assert node.wait() == 130
        assert "Traceback" not in node.err
        assert "; no report of the end was written: No space left on device" in our_lines(node)[-1]
