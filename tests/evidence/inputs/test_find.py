"""Walking folders full of traps."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from allready.evidence.inputs import Found, find, unpack
from allready.model import SourceRecord
from tests.cases import cases
from tests.evidence.inputs.contents import contents


def files(*arguments: object) -> list[str]:
    return [item.path for item in find([str(a) for a in arguments]) if isinstance(item, Found)]


def notes(*arguments: object) -> dict[str, str]:
    return {
        item.path: item.problem or "" for item in find([str(a) for a in arguments]) if isinstance(item, SourceRecord)
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run" / "node1").mkdir(parents=True)
    for name in ("a.log", "b.log", "node1/c.log"):
        (tmp_path / "run" / name).write_text(name)
    return tmp_path / "run"


def test_finds_files_in_folders_of_any_depth(run: Path) -> None:
    assert sorted(files(run)) == [str(run / "a.log"), str(run / "b.log"), str(run / "node1/c.log")]


def test_keeps_labels_as_the_user_gave_them(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    assert sorted(files("run")) == ["run/a.log", "run/b.log", "run/node1/c.log"]
    assert files("./run/a.log") == ["./run/a.log"]


def test_a_pattern_that_the_shell_left_alone_is_filled_in(run: Path) -> None:
    assert sorted(files(f"{run}/*.log")) == [str(run / "a.log"), str(run / "b.log")]
    assert sorted(files(f"{run}/**/*.log")) == sorted(files(run))
    assert files(f"{run}/*.txt") == []
    assert "no file fits" in notes(f"{run}/*.txt")[f"{run}/*.txt"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(run: Path) -> None:
    (run / "x[1].log").write_text("x")
    assert files(run / "x[1].log") == [str(run / "x[1].log")]


def test_what_is_missing_is_said_and_the_rest_goes_on(run: Path) -> None:
    assert files(run / "gone", run / "a.log") == [str(run / "a.log")]
    assert notes(run / "gone") == {str(run / "gone"): "there is no such file or folder"}
    assert "embedded null" in notes("a\0b")["a\0b"]


@cases(
    "twice",
    [
        lambda run: (run, run),
        lambda run: (run, run / "a.log"),
        lambda run: (run / "a.log", run),
        lambda run: (run / "a.log", run, run / "a.log"),
        lambda run: (run / "node1", run),
        lambda run: (f"{run}/**/*", run),
        lambda run: (run / "node1" / "..", run),
    ],
)
def test_every_file_is_read_once_whatever_ways_lead_to_it(twice: object, run: Path) -> None:
    found = files(*twice(run))  # type: ignore[operator]
    assert sorted(os.path.realpath(f) for f in found) == sorted(os.path.realpath(f) for f in files(run))


def test_hard_links_and_links_to_files_are_one_file(run: Path) -> None:
    os.link(run / "a.log", run / "node1" / "same.log")
    (run / "node1" / "also.log").symlink_to(run / "a.log")
    (run / "first.log").symlink_to(run / "node1" / "c.log")
    assert len(files(run)) == 3


def test_a_link_to_a_file_elsewhere_is_followed(run: Path) -> None:
    (run.parent / "elsewhere.log").write_text("e")
    (run / "link.log").symlink_to(run.parent / "elsewhere.log")
    assert str(run / "link.log") in files(run)


def test_link_loops_end(run: Path) -> None:
    (run / "loop").symlink_to(run)
    (run / "node1" / "up").symlink_to("..")
    (run / "self").symlink_to("self")
    (run / "ping").symlink_to("pong")
    (run / "pong").symlink_to("ping")
    (run / "nowhere").symlink_to("not-there")
    assert len(files(run)) == 3
    told = notes(run)
    assert "not followed" in told[str(run / "loop")]
    assert "leads back to itself" in told[str(run / "self")]
    assert "leads back to itself" in told[str(run / "ping")]
    assert "link to nothing" in told[str(run / "nowhere")]


def test_a_link_to_a_folder_is_followed_when_it_is_named(run: Path) -> None:
    (run.parent / "latest").symlink_to(run)
    assert len(files(run.parent / "latest")) == 3


@pytest.fixture
def special(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    os.mkfifo(run / "fifo")
    monkeypatch.chdir(run)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        yield run


def test_pipes_and_sockets_are_never_opened(special: Path) -> None:
    told = notes(special)
    assert "named pipe" in told[str(special / "fifo")]
    assert "socket" in told[str(special / "socket")]
    assert "named pipe" in notes(special / "fifo")[str(special / "fifo")]
    assert len(contents(special).data) == 3  # and does not wait for a writer


def test_devices_are_never_opened() -> None:
    assert "device" in notes("/dev/zero")["/dev/zero"]
    assert contents("/dev/zero", "/dev/null").data == {}


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(run: Path) -> None:
    [found] = [item for item in find([str(run / "a.log")]) if isinstance(item, Found)]
    (run / "a.log").unlink()
    os.mkfifo(run / "a.log")
    [record] = list(unpack(found))
    assert isinstance(record, SourceRecord)
    assert "no plain file any more" in (record.problem or "")


def test_folders_of_programs_are_passed_over(run: Path) -> None:
    for name in (".git", "__pycache__", "node_modules"):
        (run / name).mkdir()
        (run / name / "x.log").write_text("x")
    assert len(files(run)) == 3


def test_names_that_are_no_text_are_found(run: Path) -> None:
    name = os.fsencode(run) + b"/\xff\xfe\n.log"
    with open(name, "wb") as file:  # noqa: PTH123 - a name in bytes
        file.write(b"odd")
    assert contents(run).data[os.fsdecode(name)] == b"odd"


AS_NOBODY = """
import contextlib, json, os, sys
from tests.evidence.inputs.contents import contents
with contextlib.suppress(PermissionError):  # already somebody whom a mode of 000 stops
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
found = contents(sys.argv[1])
print(json.dumps([sorted(found.data), {k: v.problem for k, v in found.records.items()}]))
"""


def test_what_may_not_be_read_is_said_and_the_rest_goes_on() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "closed").mkdir()
        (folder / "closed" / "x.log").write_text("x")
        (folder / "secret.log").write_text("s")
        (folder / "open.log").write_text("o")
        (folder / "open.log").chmod(0o644)
        (folder / "secret.log").chmod(0)
        (folder / "closed").chmod(0)
        root = Path(__file__).resolve().parents[3]
        done = subprocess.run(
            [sys.executable, "-B", "-c", AS_NOBODY, name],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=root,
            env={"PYTHONPATH": f"{root / 'src'}:{root}", "PATH": os.environ["PATH"]},
        )
        (folder / "closed").chmod(0o700)
    assert done.returncode == 0, done.stderr
    data, records = json.loads(done.stdout)
    assert data == [f"{name}/open.log"]
    assert records == {f"{name}/closed": "no permission to read it", f"{name}/secret.log": "no permission to read it"}


def test_files_are_given_while_the_walk_goes_on(tmp_path: Path) -> None:
    for i in range(2_000):
        (tmp_path / f"{i}.log").touch()
    walk = find([str(tmp_path)])
    first = next(walk)
    assert isinstance(first, Found)  # before the rest was looked at
    assert sum(1 for _ in walk) == 1_999
