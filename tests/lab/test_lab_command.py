"""`allready lab` on the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allready.cli.main import main
from tests.cases import cases
from tests.clock import Deadline

lab = pytest.mark.lab


@pytest.fixture(autouse=True)
def own_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Labs of this test only."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("ALLREADY_LANG", "en")
    yield
    assert main(["lab", "down", "--all"]) == 0
    assert list(tmp_path.glob("allready-lab")) == []


def allready(*words: str, **options: object) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "allready.cli.main", *words]
    return subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stdin=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


@lab
def test_up_exec_fault_status_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "up", "--nodes", "2", "--name", "mine"]) == 0
    assert "lab mine: 2 nodes up" in capsys.readouterr().out
    assert main(["lab", "up", "--name", "mine"]) == 2
    assert "the lab 'mine' already exists" in capsys.readouterr().err

    assert main(["lab", "fault", "apply", "--name", "mine", "port_dropped", "node=0", "port=29500"]) == 0
    assert capsys.readouterr().out == "fault 1 is in force: port_dropped node=0 port=29500\n"
    assert main(["lab", "fault", "apply", "--name", "mine", "second_interface", "nodes=0,1"]) == 0
    assert main(["lab", "status", "--json", "-"]) == 0
    [status] = json.loads(capsys.readouterr().out.partition("nodes=0,1\n")[2])["labs"]
    assert [fault["values"]["fault"] for fault in status["faults"]] == ["port_dropped", "second_interface"]
    assert [node["address"] for node in status["nodes"]] == ["10.77.0.1", "10.77.0.2"]

    assert main(["lab", "fault", "lift", "1", "--name", "mine"]) == 0
    assert main(["lab", "fault", "lift", "all", "--name", "mine"]) == 0
    assert main(["lab", "fault", "lift", "all", "--name", "mine"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no fault is in force"
    assert main(["lab", "status", "--name", "mine"]) == 0
    assert "faults in force: none" in capsys.readouterr().out
    assert main(["lab", "down", "--name", "mine"]) == 0
    assert main(["lab", "status"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no lab is running"


@lab
def test_exec_passes_input_output_and_exit_code_through() -> None:
    assert main(["lab", "up", "--nodes", "2"]) == 0
    with allready("lab", "exec", "node1", "--", "sh", "-c", "hostname; cat; exit 7") as process:
        assert process.communicate("typed\n", timeout=60)[0] == "node1\ntyped\n"
        assert process.returncode == 7
    with allready("lab", "exec", "0", "sh", "-c", "kill -9 $$") as process:
        process.communicate(timeout=60)
        assert process.returncode == 128 + 9


@lab
def test_ctrl_c_reaches_the_command_in_the_node() -> None:
    assert main(["lab", "up", "--nodes", "1"]) == 0
    command = "import signal, sys; signal.signal(signal.SIGINT, lambda *_: (print('told'), sys.exit(3))); "
    command += "print('ready', flush=True); signal.pause()"
    with allready("lab", "exec", "0", "--", sys.executable, "-c", command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "told\n"
        assert process.returncode == 3


@lab
def test_exec_from_several_shells_at_once_keeps_the_record_whole() -> None:
    assert main(["lab", "up", "--nodes", "2"]) == 0
    running = [allready("lab", "exec", str(n % 2), "--", "sh", "-c", "echo $0; read -r line", str(n)) for n in range(6)]
    for n, process in enumerate(running):
        assert process.stdout is not None
        assert process.stdout.readline() == f"{n}\n"
    path = Path(os.environ["XDG_RUNTIME_DIR"]) / "allready-lab/default/record.json"
    deadline = Deadline(30)  # a command may speak before its shell has written it down
    while len(json.loads(path.read_text())["processes"]) < 6 and not deadline.passed():
        time.sleep(0.02)
    assert len(json.loads(path.read_text())["processes"]) == 6
    for process in running:
        process.communicate("\n", timeout=60)


@lab
def test_faults_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(
        '[[fault]]\nfault = "hosts_missing"\nnode = 0\nname = "node1"\n[[fault]]\nfault = "link_down"\nnode = 1\n'
    )
    assert main(["lab", "up", "--nodes", "2"]) == 0
    assert main(["lab", "fault", "apply", "--file", str(path)]) == 0
    assert "fault 2 is in force: link_down node=1" in capsys.readouterr().out


@lab
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["exec", "5", "--", "true"], "no node 5"),
        (["exec", "x", "--", "true"], "'x' is not a node"),
        (["exec", "0"], "no command was given"),
        (["fault", "apply"], "name one fault"),
        (["fault", "apply", "link_down", "node=9"], "no node 9; the lab has node 0 to 0"),
        (["fault", "apply", "do_not_start", "node=0"], "a running lab cannot have it"),
        (["fault", "lift", "3"], "no active fault 3"),
        (["fault", "lift", "x"], "not the number of a fault"),
        (["status", "--name", "other"], "no lab 'other' (labs of this user: default)"),
        (["status", "--json", "/nowhere/file"], "--json /nowhere/file: "),
        (["up", "--name", "a/b"], "not a valid lab name"),
        (["up", "--name", "b", "--nodes", "9", "--subnet", "10.0.0.0/29"], "no room"),
    ],
)
def test_bad_arguments_are_a_usage_error(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "up", "--nodes", "1"]) == 0
    assert main(["lab", *words]) == 2
    assert says in capsys.readouterr().err


@cases("words", [[], ["fly"], ["up", "--nodes", "0"], ["up", "--nodes", "two"], ["fault"], ["exec"]])
def test_argparse_refuses_what_it_does_not_know(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["lab", *words])
    assert caught.value.code == 2


@pytest.mark.parametrize(("language", "says"), [("en", "the other direction works"), ("zh", "反方向正常")])
def test_lists_every_fault_in_the_readers_language(
    language: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "fault", "list", "--lang", language]) == 0
    out = capsys.readouterr().out
    assert says in out
    assert "port_dropped  node=N port=N [protocol=tcp] [source=]" in out
