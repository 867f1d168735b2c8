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


def test_an_error_of_a_connection_stays_one_where_another_process_counts_on() -> None:
    counted = [f"epoch: [28/120], iter: {n}, loss: 0.9" for n in range(81000, 81400, 10)]
    broken = (
        "gpu1:520:530 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5000> with "
        "error 12, opcode 0, len 0, vendor err 129"
    )
    assert _report([*counted, broken, *counted]).status is Status.FAULT
    assert _report([*counted[:20], broken, *counted[20:]]).status is Status.FAULT
    assert _report([*counted[:20], *ADAPTER, *counted[20:]]).status is Status.FAULT
    other = "gpu2:77:77 [1] misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed"
    assert _report([*ADAPTER, other, *counted]).status is Status.FAULT


def test_a_number_with_a_dot_in_horovod_s_message_is_whole() -> None:
    error = (
        "Mismatched prescale and/or postscale factors: One rank sent factors (1.5, 0.5), but another rank sent factors "
    )
    (finding,) = [f for f in _report([f"RuntimeError: {error}(1.5, 0.25)."]).findings if f.code == "LCH068"]
    assert "(1.5, 0.25)" in finding.message


OLD_DRIVER = (
    "torch/cuda/__init__.py:141: UserWarning: CUDA initialization: "
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading "
    "and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go to: "
    "https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver. "
    "(Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)"
)


def test_what_python_printed_as_a_warning_ended_nothing_where_an_exception_speaks_of_something_else() -> None:
    raised = ["Traceback (most recent call last):", '  File "train.py", line 86, in <module>', "    go()"]
    of_types = [*raised, "RuntimeError: expected m1 and m2 to have the same dtype, but got: float != long int"]
    verdict = _report([OLD_DRIVER, "cpu", *of_types]).verdict
    assert verdict is not None
    assert (verdict.code, "same dtype" in verdict.sentence) == ("DTH001", True)
    for error in ("ValueError: this needs a GPU", "ValueError: fp16 is for CUDA devices"):
        verdict = _report([OLD_DRIVER, *raised, error]).verdict
        assert verdict is not None
        assert verdict.code == "CUD006", error
    verdict = _report([OLD_DRIVER]).verdict
    assert verdict is not None
    assert verdict.code == "CUD006"
