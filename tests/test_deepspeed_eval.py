"""examples/deepspeed_eval: training goes on through a fault in an evaluation."""

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clock import Deadline

pytestmark = [pytest.mark.torch, pytest.mark.jobs, pytest.mark.timeout(300)]
SHAPE = Path(__file__).with_name("deepspeed_shape")
"""A package of DeepSpeed's name with what the example calls of it, for where it is not installed."""
SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "deepspeed_eval" / "train.py"


def missing(package: str) -> bool:
    return importlib.util.find_spec(package) is None


def run(
    folder: Path, *arguments: str, num_ranks: int = 3, packages: tuple[str, ...] = ()
) -> list[tuple[int | None, str, str]]:
    """Exit code, output and errors of every rank; those that do not end get None, and are killed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    paths = {"PYTHONPATH": os.pathsep.join([*packages, *sys.path]), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    ranks = []
    for rank in range(num_ranks):
        out, err = (folder / f"{rank}.{kind}" for kind in ("out", "err"))
        with out.open("w") as stdout, err.open("w") as stderr:
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), *arguments],
                env={**os.environ, **common, **paths, **own},
                cwd=folder,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        ranks.append((process, out, err))
    deadline = Deadline(240.0)
    found = []
    try:
        for process, _, _ in ranks[:1] + ranks[2:]:
            while process.poll() is None and not deadline.passed():
                try:
                    process.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
        with contextlib.suppress(subprocess.TimeoutExpired):
            ranks[1][0].wait(5 if "--fault" in arguments and "raise" not in arguments else 60)
    finally:
        for process, out, err in ranks:
            code = process.poll()
            if code is None:
                process.kill()
                process.wait(20)
            found.append((code, out.read_text(), err.read_text()))
    return found


def check_all_steps(ranks: list[tuple[int | None, str, str]], evaluated: str, survivors: list[int]) -> None:
    for rank in survivors:
        code, out, err = ranks[rank]
        assert code == 0, err[-2000:]
        assert f"rank {rank}: 40 steps with {len(survivors)} ranks" in out, err[-2000:]
    lines = [line for line in ranks[0][1].splitlines() if line.startswith("step ")]
    assert [line.partition(":")[0] for line in lines] == ["step 20", "step 40"]
    assert evaluated in lines[0], lines
    assert "coverage 1.0, attempts 1" in lines[1], lines


def test_an_engine_with_groups_of_its_own_is_made_anew_after_a_fault_in_an_evaluation(tmp_path: Path) -> None:
    ranks = run(tmp_path, "--fault", "raise", "--steps", "40", "--timeout", "20", num_ranks=2, packages=(str(SHAPE),))
    check_all_steps(ranks, "coverage 1.0, attempts 2", [0, 1])


@pytest.fixture
def operator(request: pytest.FixtureRequest) -> None:
    """DeepSpeed's operator is there: a rank that is killed while it compiles leaves a lock, for which others wait."""
    if request.node.callspec.params["engine"] == "deepspeed":
        load = (
            "from deepspeed.accelerator import get_accelerator as a\n"
            "a().create_op_builder('ShareMemCommBuilder').load()"
        )
        subprocess.run(
            [sys.executable, "-c", load], env={**os.environ, "DS_ACCELERATOR": "cpu"}, timeout=1200, check=True
        )


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("fault", ["raise", "stop"])
@pytest.mark.parametrize(
    "engine",
    ["ddp", pytest.param("deepspeed", marks=pytest.mark.skipif(missing("deepspeed"), reason="needs deepspeed"))],
)
def test_training_goes_on_through_a_fault_in_an_evaluation(tmp_path: Path, engine: str, fault: str) -> None:
    ranks = run(tmp_path, "--engine", engine, "--fault", fault, "--steps", "40", "--timeout", "8")
    if fault == "raise":
        check_all_steps(ranks, "coverage 1.0, attempts 2", [0, 1, 2])
    else:
        assert ranks[1][0] is None
        check_all_steps(ranks, "attempts 2", [0, 2])


@pytest.mark.slow
@pytest.mark.skipif(missing("wandb"), reason="needs wandb")
def test_the_records_of_wandb_say_which_evaluation_was_repeated(tmp_path: Path) -> None:
    ranks = run(tmp_path, "--engine", "ddp", "--fault", "raise", "--steps", "40", "--wandb", "test", num_ranks=2)
    check_all_steps(ranks, "attempts 2", [0, 1])
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    content = file.read_bytes()
    assert b"eval/attempts" in content
    assert b"eval/evaluation_failed" in content
