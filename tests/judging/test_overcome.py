"""Errors of a library that its process did without."""

from datetime import UTC, datetime

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.log import read_lines
from allready.model import Report, Severity, Status


def _report(lines: list[str]) -> Report:
    return judge_readings([read_lines(lines, "job.out")], Question(), started=datetime.now(UTC))[0]


ADAPTER = [
    "gpu1:520:520 [0] misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed",
    "gpu1:520:520 [0] NCCL INFO NET/IB : No device found.",
]


def test_an_adapter_that_nccl_did_without_is_no_fault_of_a_job_that_counts_on() -> None:
    counted = [f"epoch: [28/120], iter: {n}, loss: 0.9" for n in range(81000, 81400, 10)]
    report = _report([*ADAPTER, *counted])
    assert report.status is Status.UNKNOWN
    assert [f.severity for f in report.findings if f.code == "NLG090"] == [Severity.WARNING]
    assert _report(ADAPTER).status is Status.FAULT
    assert _report([*counted, *ADAPTER]).status is Status.FAULT
    assert _report([*ADAPTER, "gpu1:520:520 [0] NCCL INFO init.cc:840 -> 2", *counted]).status is Status.FAULT
