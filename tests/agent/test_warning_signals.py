"""SIGUSR1, SIGUSR2 and --signals-to-handle: the ranks get what they would get under torchrun, once, and may save."""

import os
import signal
from pathlib import Path

import pytest

from allready.proc.process import children_of
from tests.agent.jobs import Job, Node, wait_for
from tests.agent.test_live import rank_pid

SAVES = """
import os, signal, sys, time
def say(text): os.write(1, f"{text}\\n".encode())
def save(number, frame):
    say(f"got {signal.Signals(number).name}")
    if len(sys.argv) > 1:
        time.sleep(float(sys.argv[1]))
        say("saved")
        os._exit(0)
for name in os.environ.get("TRAPS", "SIGUSR1").split(","):
    signal.signal(getattr(signal, name), save)
open(f"ready{os.environ['RANK']}", "w").close()
until = time.monotonic() + float(os.environ.get("RUNS_S", "60"))
while time.monotonic() < until: time.sleep(0.05)
say("through")
"""
INTERRUPTED = """
import os, time
try:
    open(f"ready{os.environ['RANK']}", "w").close()
    time.sleep(600)
except KeyboardInterrupt:
    for _ in range(60): time.sleep(0.1)
    os.write(1, b"saved\\n")
"""
LEAVES = """
import os, signal, time
open(f"ready{os.environ['RANK']}", "w").close()
time.sleep(600)
"""


def started(job: Job, text: str, *arguments: str, words: tuple[str, ...] = (), **env: str) -> Node:
    node = job.start(
        "--nproc-per-node",
        "2",
        *(() if "--grace" in arguments else ("--grace", "20")),
        *arguments,
        job.script(text),
        *words,
        env=env,
    )
    wait_for(lambda: all((job.folder / f"ready{rank}").exists() for rank in (0, 1)), 60.0)
    return node


def lines(node: Node) -> list[str]:
    """What each rank has said, sorted."""
    return sorted(line.partition("] ")[2] for line in node.out.splitlines())


def logged(node: Node, words: str) -> int:
    """How many ranks have printed it so far."""
    return sum(words in log.read_text() for log in node.report_dir.glob("attempt0/node*/rank*/out.log"))


def test_a_signal_to_the_agent_alone_reaches_the_ranks_and_ends_nothing(job: Job) -> None:
    """As mpirun passes it on, or a batch script with --signal=B:USR1@60."""
    node = started(job, SAVES, words=("0.5",))
    node.process.send_signal(signal.SIGUSR1)
    assert node.wait() == 0
    assert lines(node) == ["got SIGUSR1"] * 2 + ["saved"] * 2
    assert "SIGUSR1 came and was passed on to rank 0,1" in node.err
    assert node.report()["status"] == "healthy"


@pytest.mark.slow
def test_a_signal_to_every_process_reaches_the_ranks_once(job: Job) -> None:
    """As Slurm sends it to all processes of a step."""
    node = started(job, SAVES, RUNS_S="4")
    for pid in (node.process.pid, *(children_of(node.process.pid) or [])):
        os.kill(pid, signal.SIGUSR1)
    assert node.wait() == 0
    assert lines(node) == ["got SIGUSR1"] * 2 + ["through"] * 2
    assert "passed on" not in node.err


def test_ranks_that_do_not_handle_a_signal_live_on(job: Job) -> None:
    node = started(job, SAVES, RUNS_S="3")
    node.process.send_signal(signal.SIGUSR2)
    assert node.wait() == 0
    assert lines(node) == ["through"] * 2
    assert "SIGUSR2 came; no rank here handles it" in node.err


@pytest.mark.parametrize("name", ["SIGUSR1", pytest.param("SIGQUIT", marks=pytest.mark.slow)])
def test_a_signal_to_handle_ends_the_job_and_is_the_only_one_that_ranks_get(job: Job, name: str) -> None:
    flags = ("--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1")
    node = started(job, SAVES, *flags, words=("5",), TRAPS=f"{name},SIGTERM")
    node.process.send_signal(getattr(signal, name))
    assert node.wait() == 128 + getattr(signal, name)
    assert lines(node) == [f"got {name}"] * 2 + ["saved"] * 2
    report = node.report()
    assert (report["status"], report["job"]["outcome"]) == ("interrupted", "stopped")


def test_ranks_that_save_after_ctrl_c_are_given_the_grace(job: Job) -> None:
    """They get SIGINT, and no SIGTERM while they react to it."""
    node = started(job, INTERRUPTED)
    node.process.send_signal(signal.SIGINT)
    assert node.wait() == 130
    assert lines(node) == ["saved"] * 2


def test_ranks_that_do_not_react_to_ctrl_c_are_not_waited_for(job: Job, tmp_path: Path) -> None:
    """Python runs no handler while native code does not return."""
    blocked = "import os, ctypes\nopen(f\"ready{os.environ['RANK']}\", 'w').close()\n"
    blocked += "while True: ctypes.PyDLL(None).usleep(2_000_000_000)\n"
    node = job.start("--nproc-per-node", "2", "--grace", "600", job.script(blocked))
    wait_for(lambda: all((tmp_path / f"ready{rank}").exists() for rank in (0, 1)), 60.0)
    node.process.send_signal(signal.SIGINT)
    assert node.wait(60) == 130


def test_a_second_signal_ends_ranks_that_save_for_too_long(job: Job) -> None:
    node = started(job, SAVES, "--grace", "60", words=("600",), TRAPS="SIGINT")
    node.process.send_signal(signal.SIGINT)
    wait_for(lambda: logged(node, "got SIGINT") == 2, 20.0)
    node.process.send_signal(signal.SIGINT)
    assert node.wait(20) == 130
    assert (node.report()["status"], node.report()["job"]["outcome"]) == ("interrupted", "stopped")


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGUSR1", marks=pytest.mark.slow)])
def test_a_signal_to_the_agents_of_all_nodes_reaches_each_rank_once(job: Job, name: str) -> None:
    """As a scheduler sends it; ranks that take longer than node 0 is waited for are not hurried."""
    flags = ("--grace", "20", "--signals-to-handle", "SIGTERM,SIGUSR1", job.script(SAVES), "6")
    env = {"TRAPS": "SIGTERM,SIGUSR1"}
    nodes = [job.node(rank, *flags, env=env) for rank in (0, 1)]
    wait_for(lambda: all((job.folder / f"ready{rank}").exists() for rank in (0, 1)), 60.0)
    for node in nodes:
        node.process.send_signal(getattr(signal, name))
    for node in nodes:
        assert node.wait() == 128 + getattr(signal, name)
        assert lines(node) == [f"got {name}", "saved"]


@pytest.mark.parametrize("to_agent_first", [True, False])
def test_ranks_that_die_of_a_warning_are_no_fault(job: Job, to_agent_first: bool) -> None:
    node = started(job, LEAVES)
    ranks = [rank_pid(str(job.folder / "train.py"), rank) for rank in (0, 1)]
    agent = [node.process.pid, *(pid for pid in children_of(node.process.pid) or [] if pid not in ranks)]
    for pid in [*agent, *ranks] if to_agent_first else [*ranks, *agent]:
        os.kill(pid, signal.SIGUSR1)
    assert node.wait(60) == 128 + signal.SIGUSR1
    report = node.report()
    assert (report["status"], report["verdict"], report["job"]["outcome"]) == ("interrupted", None, "stopped")
    assert not [f for f in report["findings"] if f["severity"] in {"error", "blocker"}]
