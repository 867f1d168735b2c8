"""Jobs whose ranks leave what NCCL logged in recorded runs: agents read it where it lies, once there is a reason to."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.agent.jobs import Job, Node, wait_for

FIXTURES = Path(__file__).parents[1] / "fixtures"

LOGS = """
import os, sys
from pathlib import Path
rank, logs = int(os.environ["RANK"]), sorted(Path(sys.argv[1]).glob("**/nccl.*.log"))
name = os.environ["NCCL_DEBUG_FILE"].replace("%h", "node").replace("%p", str(os.getpid()))
Path(name).write_bytes(logs[rank].read_bytes())
"""

BOTH_RECEIVE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(20):
    dist.all_reduce(torch.ones(8))
dist.recv(torch.ones(8), 1 - rank)
"""


def job_of(job: Job, tmp_path: Path, recorded: str, then: str = "") -> Node:
    with tarfile.open(FIXTURES / f"{recorded}.tar.xz") as tar:
        tar.extractall(tmp_path / "recorded", filter="data")
    return job.start("--nproc-per-node", "2", "--nccl-log=INFO", job.script(LOGS + then), str(tmp_path / "recorded"))


@pytest.mark.parametrize(
    ("recorded", "code", "ranks"),
    [
        pytest.param("h100/frameworks/p2p_sizes", "DSY002", [], marks=pytest.mark.slow),
        ("h100/frameworks/splits", "DSY004", [0, 1]),
    ],
)
def test_sends_that_do_not_fit_are_reported_of_a_job_that_ended_well(
    job: Job, tmp_path: Path, recorded: str, code: str, ranks: list[int]
) -> None:
    node = job_of(job, tmp_path, recorded)
    assert node.wait(60) == 0, node.err  # its ranks ended with 0, whatever their results are worth
    report = node.report()
    verdict = report["verdict"]
    assert (verdict["code"], verdict["fault_class"], verdict["culprits"]["ranks"]) == (code, "DESYNC-ARGS", ranks)
    assert (report["status"], report["job"]["outcome"]) == ("fault", "success")


def test_calls_that_all_ranks_made_alike_are_no_fault(job: Job, tmp_path: Path) -> None:
    node = job_of(job, tmp_path, "h200/ruins/healthy")
    assert node.wait(60) == 0, node.err
    assert (node.report()["status"], node.report()["verdict"]) == ("healthy", None)


def test_two_ranks_that_hang_in_a_receive_are_shown_before_what_nccl_logged_is_read(job: Job, tmp_path: Path) -> None:
    """Frames show the calls; what the logs tell (DSY006) has the same class, and comes later."""
    node = job_of(job, tmp_path, "h100/two_nodes/both_recv", BOTH_RECEIVE)

    def verdict() -> dict[str, Any] | None:
        report = node.report() if (node.report_dir / "report.json").exists() else {"verdict": None}
        found: dict[str, Any] | None = report["verdict"]
        return found

    found = wait_for(verdict, 60.0)
    assert found["code"] == "LIV018"
    assert (found["fault_class"], found["culprits"]["ranks"], found["confidence"]) == ("DESYNC-FLOW", [], "likely")
