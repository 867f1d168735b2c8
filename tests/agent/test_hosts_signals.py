"""`run --hosts` through a real sshd: a signal to the launcher reaches the ranks of all hosts as one to their agents."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.jobs import Job, Node, processes_with, wait_for
from tests.agent.test_warning_signals import SAVES, logged
from tests.sshd import Sshd, needs_sshd

pytestmark = needs_sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    made = Sshd(tmp_path_factory.mktemp("sshd"))
    try:
        yield made
    finally:
        made.end()


def started(job: Job, sshd: Sshd, *flags: str, words: tuple[str, ...] = (), traps: str = "SIGUSR1") -> Node:
    """One rank on each of two hosts; both have their handlers."""
    options = [word for option in sshd.options().options for word in ("--ssh-option", option)]
    hosts = ",".join(map(str, sshd.targets()))
    fixed = ("--hosts", hosts, "--master-addr", "127.0.0.1", "--master-port", str(job.port), "--nproc-per-node", "1")
    # variables of ours do not pass by themselves
    text = f"import os\nos.environ.update(TRAPS={traps!r}, RUNS_S='60')\n{SAVES}"
    node = job.start(
        *fixed, *options, *(flags if "--grace" in flags else ("--grace", "20", *flags)), job.script(text), *words
    )
    wait_for(lambda: all((job.folder / f"ready{r}").exists() for r in (0, 1)) or node.process.poll() is not None, 60.0)
    return node


def lines(node: Node) -> list[str]:
    return sorted(line.rpartition("] ")[2] for line in node.out.splitlines() if "] " in line)


def nothing_is_left(folder: Path) -> None:
    wait_for(lambda: not processes_with(str(folder / "train.py")), 10.0)


@pytest.mark.parametrize("name", ["SIGUSR1", pytest.param("SIGUSR2", marks=pytest.mark.slow)])
def test_a_warning_reaches_the_ranks_of_all_hosts_and_ends_nothing(job: Job, sshd: Sshd, name: str) -> None:
    node = started(job, sshd, words=("0.5",), traps=name)
    node.process.send_signal(getattr(signal, name))
    assert node.wait() == 0, node.err
    assert lines(node) == [f"got {name}"] * 2 + ["saved"] * 2
    assert node.report()["status"] == "healthy"
    assert node.err.count(f"{name} came and was passed on to rank ") == 2
    nothing_is_left(job.folder)


@pytest.mark.parametrize(
    "name",
    [
        "SIGALRM",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("SIGUSR1", "SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM")),
    ],
)
def test_a_signal_that_ends_the_job_is_the_one_that_ranks_of_all_hosts_get(job: Job, sshd: Sshd, name: str) -> None:
    flags = ("--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGALRM")
    node = started(job, sshd, *flags, words=("5",), traps=f"{name},SIGTERM" if name != "SIGTERM" else name)
    node.process.send_signal(getattr(signal, name))
    assert node.wait() == 128 + getattr(signal, name), node.err
    assert lines(node) == [f"got {name}"] * 2 + ["saved"] * 2
    report = node.report()
    assert (report["status"], report["job"]["outcome"]) == ("interrupted", "stopped")
    assert "agent on" not in node.err
    nothing_is_left(job.folder)


@pytest.mark.slow
def test_so_is_one_of_the_configuration_file(job: Job, sshd: Sshd) -> None:
    (job.folder / "job.toml").write_text('[job]\nsignals-to-handle = "SIGTERM,SIGALRM"\n')
    node = started(job, sshd, "--config", str(job.folder / "job.toml"), words=("5",), traps="SIGALRM,SIGTERM")
    node.process.send_signal(signal.SIGALRM)
    assert node.wait() == 128 + signal.SIGALRM, node.err
    assert lines(node) == ["got SIGALRM"] * 2 + ["saved"] * 2
    nothing_is_left(job.folder)


@pytest.mark.slow
def test_a_second_signal_ends_ranks_that_save_for_too_long(job: Job, sshd: Sshd) -> None:
    node = started(job, sshd, "--grace", "60", words=("600",), traps="SIGINT")
    node.process.send_signal(signal.SIGINT)
    wait_for(lambda: logged(node, "got SIGINT") == 2, 20.0)
    node.process.send_signal(signal.SIGINT)
    assert node.wait(20) == 130
    assert lines(node) == ["got SIGINT"] * 2
    nothing_is_left(job.folder)


def test_a_signal_before_all_hosts_are_reached_ends_the_wait(job: Job, sshd: Sshd) -> None:
    """A port that accepts and says nothing is no sshd."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        options = [word for option in sshd.options().options for word in ("--ssh-option", option)]
        hosts = f"127.0.0.1:{sshd.port},127.0.0.1:{port}"
        flags = ("--hosts", hosts, "--master-port", str(job.port), "--nproc-per-node", "1")
        node = job.start(*flags, *options, job.script(SAVES))
        wait_for(lambda: (node.report_dir / "report.json").exists(), 60.0)
        node.process.send_signal(signal.SIGINT)
        assert node.wait(15) == 130
    nothing_is_left(job.folder)


def test_a_signal_that_does_not_exist_is_refused_here(job: Job) -> None:
    node = job.start("--hosts", "gpu01", "--signals-to-handle", "SIGNONE", job.script(SAVES))
    assert node.wait() == 2
    assert "--signals-to-handle: there is no signal SIGNONE" in node.err
