"""Under the launchers themselves, not their made-up variables: one process per node acts, the others say so."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.processes import MARK, ROLL, Job, plain_environment
from tests.clock import Deadline

ALLREADY = str(Path(sys.executable).with_name("allready"))
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def launched(
    job: Job, *argv: str, check: tuple[str, ...] = ROLL, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """The launcher's whole run; `allready check` is the program it starts."""
    if shutil.which(argv[0]) is None or not Path(ALLREADY).exists():
        pytest.skip(f"{Path(argv[0]).name} or the console script is not installed")
    return subprocess.run(
        [*argv, ALLREADY, "check", *check],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=job.folder,
        check=False,
        env=plain_environment(**{MARK: job.mark, **AS_ROOT, **environment}),
        start_new_session=True,
    )


def one_acted(done: "subprocess.CompletedProcess[str]", num_silent: int) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("HEALTHY") == 1, done.stdout
    assert done.stderr.count("local rank 0 checks for node 0") == num_silent, done.stderr


def test_torchrun_on_one_machine(job: Job) -> None:
    done = launched(job, TORCHRUN, "--nproc-per-node", "2", "--master-port", str(job.port), "--no-python")
    one_acted(done, 1)
    assert "2 ranks" in done.stdout


def test_a_variable_with_another_meaning_is_named_and_stops_nothing(job: Job) -> None:
    done = launched(job, "env", SVD_RANK="32", SVD_SIZE="100")
    one_acted(done, 0)
    assert "SVD_SIZE=100 is set" in done.stderr
    done = launched(job, "env", STARTER_RANK="3", STARTER_SIZE="8")
    assert done.returncode == 2, done.stderr
    assert "STARTER_SIZE=8 is set" in done.stderr


@pytest.mark.slow
def test_torchrun_on_two_nodes_that_meet_by_its_variables(job: Job) -> None:
    if not Path(TORCHRUN).exists():
        pytest.skip("torchrun is not installed")
    nodes = []
    for node in range(2):
        argv = [
            TORCHRUN,
            "--nnodes",
            "2",
            "--node-rank",
            str(node),
            "--nproc-per-node",
            "2",
            "--master-addr",
            "127.0.0.1",
            "--master-port",
            str(job.port),
            "--no-python",
            ALLREADY,
            "check",
            *ROLL,
        ]
        nodes.append(job.start(node, argv=argv))
    for started in nodes:
        assert started.wait(60) == 0, started.all_words()
        assert started.output.count("HEALTHY") == 1
        assert "2 nodes, 4 ranks" in started.output


@pytest.mark.slow
def test_a_fault_under_torchrun_is_a_failure_of_torchrun(job: Job) -> None:
    done = launched(
        job,
        TORCHRUN,
        "--nproc-per-node",
        "1",
        "--master-port",
        str(job.port),
        "--no-python",
        check=(*ROLL, "--nnodes", "2", "--wait", "2.5", "--master-port", str(job.port)),
    )
    assert done.returncode == 1
    assert "FAULT" in done.stdout


@pytest.mark.parametrize("words", [("-n", "2"), pytest.param(("-n", "1"), marks=pytest.mark.slow)])
def test_open_mpi(job: Job, words: tuple[str, str]) -> None:
    done = launched(job, "mpirun.openmpi", "--oversubscribe", *words, MASTER_PORT=str(job.port))
    one_acted(done, int(words[1]) - 1)
    assert f"{words[1]} rank" in done.stdout


@pytest.mark.parametrize("words", [("-n", "2"), pytest.param(("-n", "1"), marks=pytest.mark.slow)])
def test_mpich(job: Job, words: tuple[str, str]) -> None:
    done = launched(job, "mpiexec.mpich", *words, MASTER_PORT=str(job.port))
    one_acted(done, int(words[1]) - 1)
    assert f"{words[1]} rank" in done.stdout


@pytest.mark.slow
def test_the_ranks_of_a_check_under_mpirun_are_not_taken_for_mpi_processes(job: Job) -> None:
    done = launched(
        job,
        "mpirun.openmpi",
        "--oversubscribe",
        "-n",
        "2",
        MASTER_PORT=str(job.port),
        check=("--backend", "gloo", "--quick"),
    )
    one_acted(done, 1)
    assert "stages passed on 2 ranks" in done.stdout


def test_ending_mpirun_ends_the_check_and_its_ranks(job: Job) -> None:
    if shutil.which("mpirun.openmpi") is None:
        pytest.skip("mpirun.openmpi is not installed")
    sweep = ("--backend", "gloo", "--min-bytes", "4M", "--max-bytes", "4M", "--iters", "1000000")
    argv = ["mpirun.openmpi", "--oversubscribe", "-n", "2", ALLREADY, "check", *sweep]
    node = job.start(0, argv=argv, env={**AS_ROOT, "MASTER_PORT": str(job.port)})
    node.until_said("sweep:", within_s=60)
    assert len(job.ranks()) == 2
    node.process.terminate()
    assert node.wait(15) != 0
    deadline = Deadline(5)
    while job.living() and not deadline.passed():
        time.sleep(0.05)
    job.assert_nothing_left()
