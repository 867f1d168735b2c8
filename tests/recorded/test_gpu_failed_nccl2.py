"""Jobs of two ranks under torchrun on H200s that failed with torch 2.15, whose backend is nccl2 (NCCL 2.30.7), recorded
by benchmarks/record_gpu_failed.py: NCCL's logs, torchrun's output, and the dumps that each rank wrote by itself.
"""

from pathlib import Path
from typing import Any

from tests.cases import cases
from tests.recorded.archives import diagnosed, named, unpacked

FOLDER = Path(__file__).parents[1] / "fixtures" / "h200" / "nccl2"
RUNS = {path.name.removesuffix(".tar.xz"): path for path in sorted(FOLDER.glob("*.tar.xz"))}

TRUTH: dict[str, tuple[str, set[str], dict[str, Any]]] = {
    # run -> fault class, confidence that is due, culprits
    "cuda_oom": ("DEAD", {"certain"}, {"ranks": [1]}),
    "device_assert": ("DEAD", {"certain"}, {"ranks": [1]}),
    "exception": ("DEAD", {"certain"}, {"ranks": [1]}),
    "segfault": ("DEAD", {"certain"}, {"ranks": [1]}),
    "sigkill": ("DEAD", {"certain"}, {"ranks": [1]}),
    "exits_early": ("DESYNC-FLOW", {"likely"}, {"ranks": [1]}),  # its process crashes on the way out
    "os_exit": ("DESYNC-FLOW", {"likely"}, {"ranks": [1]}),
    "skip": ("DESYNC-FLOW", {"likely"}, {"ranks": [1]}),
    "order": ("DESYNC-FLOW", {"likely"}, {"ranks": [1]}),
    "size": ("DESYNC-ARGS", {"likely"}, {}),  # of two ranks that differ no rank can tell which one is wrong
    "dtype": ("DESYNC-ARGS", {"likely"}, {}),
    "sleeps": ("CPU-STUCK", {"likely"}, {"ranks": [1]}),
    "send_alone": ("CPU-STUCK", {"likely"}, {"ranks": [1]}),  # rank 1 waits in its first send, and dumps nothing
    "spin": ("NET-BROKEN", {"possible"}, {}),
    "slow": ("SLOW-COMP", {"certain"}, {"ranks": [1]}),  # ranks of one node have one clock
    "fewer_steps": ("DESYNC-FLOW", {"likely"}, {"ranks": [1]}),
}


def test_the_recordings_are_there() -> None:
    assert set(RUNS) == {*TRUTH, "healthy"}


@cases("name", sorted(TRUTH), parts=2)
def test_what_a_job_left_gives_the_verdict(name: str, tmp_path: Path) -> None:
    verdict = diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)["verdict"]
    fault_class, confidence, culprits = TRUTH[name]
    assert (verdict["fault_class"], named(verdict)) == (fault_class, culprits)
    assert verdict["confidence"] in confidence


def test_logs_that_end_with_an_operation_prove_no_good_end(tmp_path: Path) -> None:
    """NCCL 2.30.7 does not log that a communicator was destroyed, and torchrun does not print that all went well."""
    report = diagnosed(unpacked(RUNS["healthy"], tmp_path), tmp_path)
    assert (report["status"], report["verdict"]) == ("unknown", None)


@cases("kind", ["nccl.", "out.", "fr_"])
@cases("name", sorted({*TRUTH, "healthy"}), parts=6)
def test_one_kind_of_evidence_alone_accuses_nobody_wrongly(name: str, kind: str, tmp_path: Path) -> None:
    folder = unpacked(RUNS[name], tmp_path)
    for path in folder.iterdir():
        if not path.name.startswith(kind):
            path.unlink()
    if not any(folder.iterdir()):
        return
    verdict = diagnosed(folder, tmp_path)["verdict"]
    if verdict is None or verdict["confidence"] == "possible":
        return
    assert name != "healthy"
    assert set(named(verdict).get("ranks", [1])) <= {1}
    assert named(verdict).get("nodes", [0]) == [0]
