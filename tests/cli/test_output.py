"""Where results go, and that a stream or a disk that fails costs the output and never the check."""

import fcntl
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.patches import patched
from tests.cli.processes import PROGRAM, ROLL, Job, eventually, plain_environment
from tests.small_disk import small_disk


def alone(job: Job, *extra: str) -> list[str]:
    """One healthy node, quickly."""
    return [*PROGRAM, "check", "--nnodes", "1", "--nproc-per-node", "1", "--master-port", str(job.port), *ROLL, *extra]


def ran(job: Job, *extra: str, shell: str | None = None, env: dict[str, str] | None = None) -> Any:
    """Run it to its end; `shell` is a bash command line in which "$@" stands for it."""
    argv = alone(job, *extra)
    return subprocess.run(
        argv if shell is None else ["bash", "-c", shell, "bash", *argv],
        capture_output=True,
        text=True,
        env=plain_environment() if env is None else env,
        timeout=30,
        cwd=job.folder,
        check=False,
    )


def test_json_to_stdout_is_one_document_and_nothing_else(job: Job) -> None:
    done = ran(job, "--json", "-")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert (report["schema"], report["status"], report["command"]) == ("allready.report/1", "healthy", "check")
    assert report["verdict"] is None


def test_json_to_stdout_keeps_progress_on_stderr(job: Job) -> None:
    job.num_nodes = 2
    node = job.start(0, "--json", "-", "--wait", "2.5", *ROLL)
    assert node.wait(10) == 1
    report = json.loads(node.output)
    assert report["status"] == "fault"
    assert report["verdict"]["culprits"]["nodes"] == [1]
    assert "waiting for node 1" in node.errors


def test_every_file_that_was_asked_for_is_written_and_named(job: Job) -> None:
    folder = job.folder / "deep" / "er"
    done = ran(job, "--json", "a b.json", "--html", "报告.html", "--report-dir", str(folder))
    assert done.returncode == 0
    files = [job.folder / "a b.json", job.folder / "报告.html", folder / "report.json", folder / "report.html"]
    for file in files:
        assert file.stat().st_size > 500
        assert str(file.name) in done.stdout
    assert json.loads(files[0].read_bytes()) == json.loads(files[2].read_bytes())
    assert files[1].read_text().startswith("<!DOCTYPE html>")
    assert sorted(p.name for p in folder.iterdir()) == ["report.html", "report.json"]


def test_the_report_is_whole_whenever_it_is_read_and_says_waiting_with_the_absent_node(job: Job) -> None:
    job.num_nodes = 3
    nodes = [job.start(node, *ROLL, "--wait", "4.5") for node in (0, 1)]
    path = nodes[0].folder / "report.json"
    seen: list[tuple[str, Any]] = []
    reads = 0
    while nodes[0].process.poll() is None:
        if path.exists():
            reads += 1
            report = json.loads(path.read_bytes())  # raises on half a document
            accused = report["verdict"] and report["verdict"]["culprits"]["nodes"]
            if not seen or seen[-1] != (report["status"], accused):
                seen.append((report["status"], accused))
    assert reads > 100
    assert ("waiting", [2]) in seen
    assert {status for status, _ in seen} <= {"waiting", "fault"}
    for node in nodes:
        assert node.wait(5) == 1
        assert (node.report["status"], node.report["verdict"]["culprits"]["nodes"]) == ("fault", [2])


@pytest.mark.slow
def test_the_report_never_says_healthy_before_the_last_stage_is_over(job: Job) -> None:
    nodes = job.start_all("--quick", "--backend", "gloo")
    path = nodes[0].folder / "report.json"
    while nodes[0].process.poll() is None:
        report = json.loads(path.read_bytes()) if path.exists() else {"status": "waiting", "collectives": None}
        assert report["status"] == "waiting" or report["collectives"] is not None
        time.sleep(0.005)
    for node in nodes:
        assert node.wait(5) == 0, node.all_words()
        assert node.report["status"] == "healthy"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 KiB."""
    with small_disk(tmp_path / "small", "size=16k") as folder:
        yield folder


def test_a_full_disk_loses_the_file_and_not_the_check(job: Job, disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "fill").write_bytes(bytes(65536))
    done = ran(job, "--report-dir", str(disk))
    assert done.returncode == 0
    assert "HEALTHY" in done.stdout
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "written" not in done.stdout, "what was not written must not be named"
    assert [p.name for p in disk.iterdir()] == ["fill"]


@pytest.mark.parametrize(
    "shell",
    [
        '"$@" <&- >&- 2>&-',
        '"$@" 2>/dev/full',
        '"$@" -vv | head -c1 >/dev/null; exit ${PIPESTATUS[0]}',
        '"$@" --json - | true; exit ${PIPESTATUS[0]}',
        'cd /; HOME=/nonexistent "$@"',
        *(
            pytest.param(shell, marks=pytest.mark.slow)
            for shell in (
                '"$@" >&-',
                '"$@" 2>&-',
                '"$@" <&-',
                '"$@" | true; exit ${PIPESTATUS[0]}',
                '"$@" 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}',
                'unset HOME; "$@"',
            )
        ),
    ],
)
def test_a_stream_that_is_not_there_changes_no_exit_code(job: Job, shell: str) -> None:
    done = ran(job, "--report-dir", str(job.folder / "r"), shell=shell)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert json.loads((job.folder / "r" / "report.json").read_bytes())["status"] == "healthy"


def test_a_standard_output_that_takes_nothing_is_said(job: Job) -> None:
    done = ran(job, shell='"$@" >/dev/full')
    assert done.returncode == 2
    assert done.stderr == "allready check: cannot write to standard output: No space left on device\n"


def test_quiet_is_only_the_verdict(job: Job) -> None:
    done = ran(job, "-q")
    assert done.returncode == 0
    assert re.fullmatch(r".?.?HEALTHY: .*\n", done.stdout)
    assert done.stderr == ""
    job.num_nodes = 2
    node = job.start(0, "-q", "--wait", "2.5", *ROLL)
    assert node.wait(10) == 1
    assert node.errors == ""
    assert 2 <= len(node.output.splitlines()) <= 4, "the verdict, the culprit, what to do"
    assert "node 1" in node.output


@pytest.mark.parametrize(
    ("extra", "environment"),
    [pytest.param(("--lang", "zh"), {}, marks=pytest.mark.slow), ((), {"LC_ALL": "zh_CN.UTF-8"})],
)
def test_chinese_output_is_chinese_and_the_json_is_not(
    job: Job, extra: tuple[str, ...], environment: dict[str, str]
) -> None:
    job.num_nodes = 2
    node = job.start(0, "--wait", "2.5", *extra, *ROLL, env=environment)
    assert node.wait(10) == 1
    assert "节点" in node.output
    assert "节点" in node.errors
    assert "waiting for" not in node.errors
    assert not re.search("[\u4e00-\u9fff]", (node.folder / "report.json").read_text())
    assert "节点" in (node.folder / "report.html").read_text()


def test_an_ascii_locale_with_chinese_in_the_answer_still_answers(job: Job) -> None:
    script = job.folder / "训练.py"
    script.write_text("print(1)\n")
    environment = plain_environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    done = ran(job, "--lang", "zh", "-v", "--report-dir", "报告", "--", str(script), env=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.isascii()
    assert json.loads((job.folder / "报告" / "report.json").read_bytes())["status"] == "healthy"


def test_a_file_name_that_is_no_text_still_answers(job: Job) -> None:
    name = os.fsdecode(b"train-\xff\xfe.py")
    (job.folder / name).write_text("print(1)\n")
    done = ran(job, "--json", "r.json", "--html", "r.html", "-vv", "--", name)
    assert done.returncode == 0, done.stderr
    report = json.loads((job.folder / "r.json").read_bytes())
    assert "train-" in report["facts"]["0"]["script"]["path"]


RENAME = "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])"


def test_a_host_name_with_markup_and_escapes_injects_nothing(job: Job) -> None:
    name = "gpu\x1b[31m<i>01</i>\n&"
    renamed = ["unshare", "--uts", sys.executable, "-c", RENAME, name]
    if subprocess.run([*renamed, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot make a UTS namespace here")
    job.num_nodes = 2
    node = job.start(0, argv=[*renamed, *job.argv(0, "--wait", "1.2", *ROLL)])
    assert node.wait(10) == 1, node.all_words()
    assert node.report["facts"]["0"]["host"]["hostname"] == name
    assert "\x1b" not in node.output + node.errors
    page = (node.folder / "report.html").read_text()
    assert "<i>01" not in page
    assert "\x1b" not in page


@pytest.mark.parametrize(
    "term", ["xterm-256color", *(pytest.param(t, marks=pytest.mark.slow) for t in ("dumb", "no-such-terminal"))]
)
def test_on_a_terminal_the_verdict_is_shown_and_the_cursor_left_alone(job: Job, term: str) -> None:
    ours, theirs = pty.openpty()
    seen = bytearray()

    def read() -> None:
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the last writer has closed it
                return
            seen.extend(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        job.num_nodes = 2
        node = job.start(0, "--wait", "2.5", *ROLL, env={"TERM": term}, stdout=theirs, stderr=theirs, stdin=theirs)
    finally:
        os.close(theirs)
    code = node.wait(10)
    reader.join(5)
    os.close(ours)
    assert code == 1
    assert "FAULT" in seen.decode()
    assert b"\x1b[?25l" not in seen, "a hidden cursor stays hidden after a SIGKILL"
    assert (b"\x1b[" in seen) == (term != "dumb")


def test_a_reader_that_takes_nothing_does_not_stop_the_check(job: Job) -> None:
    """As with Ctrl-S: the pipe is full long before the end; the files are written all the same."""
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, bytes(fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ)))
        node = job.start(0, *ROLL, "--wait", "1.2", stdout=write_end)
        path = node.folder / "report.json"
        eventually(lambda: path.exists() and node.report["status"] == "fault", within_s=10, what=node.all_words)
        assert node.process.poll() is None, "it waits for its reader, as any program does"
        for _ in range(3):
            node.process.terminate()
            time.sleep(0.2)
        assert node.wait(2.0) == 3
    finally:
        os.close(read_end)
        os.close(write_end)


def test_without_any_tool_on_the_path_it_still_answers(job: Job) -> None:
    done = ran(job, env={"PATH": "/nonexistent", "LANG": "C.UTF-8"})
    assert done.returncode == 0, done.stderr
    assert shutil.which("true", path="/nonexistent") is None
    assert "HEALTHY" in done.stdout


BROKEN_PAGE = """
from allready.report import html
def render(*args, **kwargs):
    raise ZeroDivisionError("made up")
html.render = render
"""


def test_a_page_that_cannot_be_made_costs_the_page_and_not_the_verdict(job: Job) -> None:
    job.num_nodes = 1
    node = job.start(0, *ROLL, env=patched(job.folder, BROKEN_PAGE))
    assert node.wait(20) == 0, node.all_words()
    assert node.report["status"] == "healthy"
    assert "report.html: ZeroDivisionError: made up" in node.errors
    assert not (node.folder / "report.html").exists()
