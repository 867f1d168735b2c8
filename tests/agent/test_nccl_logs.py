"""A job without a recorder, whose ranks write what NCCL logged in recorded runs: what the agents make of it."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.agent.jobs import Job, Node, wait_for

FIXTURES = Path(__file__).parents[1] / "fixtures"

REPLAYS = """
import os, signal, sys, time
from pathlib import Path
rank, logs, then = int(os.environ["RANK"]), sorted(Path(sys.argv[1]).glob("**/nccl.*.log")), sys.argv[2]
name = os.environ["NCCL_DEBUG_FILE"].replace("%h", "node").replace("%p", str(os.getpid()))
Path(name).write_bytes(logs[rank].read_bytes())
if then == "wait":
    time.sleep(1 if rank == 0 else 300)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def job_of(job: Job, tmp_path: Path, recorded: str, then: str) -> Node:
    with tarfile.open(FIXTURES / f"{recorded}.tar.xz") as tar:
        tar.extractall(tmp_path / "recorded", filter="data")
    script = job.script(REPLAYS)
    return job.start("--nproc-per-node", "2", "--nccl-log", "INFO", script, str(tmp_path / "recorded"), then)


def verdict_of(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.report()["verdict"]
    return found


@pytest.mark.parametrize(
    ("recorded", "code", "ranks"),
    [("h100/frameworks/p2p_sizes", "DSY002", []), ("h100/frameworks/splits", "DSY004", [0, 1])],
)
def test_sends_that_do_not_fit_are_reported_of_a_job_that_ended_well(
    job: Job, tmp_path: Path, recorded: str, code: str, ranks: list[int]
) -> None:
    node = job_of(job, tmp_path, recorded, "end")
    assert node.wait(60) == 0, node.err  # its ranks ended with 0, whatever their results are worth
    verdict = verdict_of(node)
    assert (verdict["code"], verdict["fault_class"], verdict["culprits"]["ranks"]) == (code, "DESYNC-ARGS", ranks)
    assert node.report()["status"] == "fault"


def test_calls_that_all_ranks_made_alike_are_no_fault(job: Job, tmp_path: Path) -> None:
    node = job_of(job, tmp_path, "h200/ruins/healthy", "end")
    assert node.wait(60) == 0, node.err
    assert (node.report()["status"], node.report()["verdict"]) == ("healthy", None)
