"""Jobs of two ranks under torchrun on H200s that failed, recorded by benchmarks/record_gpu_failed.py: the verdict from
NCCL's logs, torchrun's output and the dumps that the watchdogs wrote, without anything of ours in the job.

Of two ranks that differ no rank can tell which one is wrong; then the operation is named and no rank accused.
"""

from pathlib import Path
from typing import Any

from tests.cases import cases
from tests.recorded.archives import diagnosed, named, unpacked

FOLDER = Path(__file__).parents[1] / "fixtures" / "h200" / "ruins"
RUNS = {path.name.removesuffix(".tar.xz"): path for path in sorted(FOLDER.glob("*.tar.xz"))}

TRUTH: dict[str, tuple[str, set[str], dict[str, Any]]] = {
    # run -> fault class, confidence that is due, culprits
    "cuda_oom": ("DEAD", {"certain"}, {"ranks": [1]}),
    "device_assert": ("DEAD", {"certain"}, {"ranks": [1]}),
    "exception": ("DEAD", {"certain"}, {"ranks": [1]}),
    "segfault": ("DEAD", {"certain"}, {"ranks": [1]}),
    "sigkill": ("DEAD", {"certain"}, {"ranks": [1]}),
    "exits_early": ("DESYNC-FLOW", {"likely"}, {"ranks": [1]}),
    "os_exit": ("DESYNC-FLOW", {"likely"}, {"ranks": [1]}),
    "send_alone": ("DESYNC-FLOW", {"likely"}, {"ranks": [1]}),
    "sleeps": ("CPU-STUCK", {"likely"}, {"ranks": [1]}),
    "slow": ("SLOW-COMP", {"certain"}, {"ranks": [1]}),  # ranks of one node have one clock
    "skip": ("DESYNC-FLOW", {"likely"}, {"ranks": [1]}),
    "order": ("DESYNC-FLOW", {"likely"}, {"ranks": [1]}),
    "size": ("DESYNC-ARGS", {"likely"}, {}),
    "dtype": ("DESYNC-ARGS", {"likely"}, {}),
    "same_gpu": ("ENV-MISMATCH", {"likely"}, {}),
    "no_interface": ("START-NAME", {"certain"}, {"nodes": [0], "variables": ["NCCL_SOCKET_IFNAME"]}),
    # What these left does not say more than that a rank is waited for.
    "fewer_steps": ("CPU-STUCK", {"likely"}, {"ranks": [1]}),  # it waits at its end, in no collective
    "never_joins": ("START-ABSENT", {"possible"}, {"ranks": [1]}),
    "spin": ("NET-BROKEN", {"possible"}, {}),
}


def test_the_recordings_are_there() -> None:
    assert set(RUNS) == {*TRUTH, "healthy"}


@cases("name", sorted(TRUTH), parts=2)
def test_what_a_job_left_gives_the_verdict(name: str, tmp_path: Path) -> None:
    verdict = diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)["verdict"]
    fault_class, confidence, culprits = TRUTH[name]
    assert (verdict["fault_class"], named(verdict)) == (fault_class, culprits)
    assert verdict["confidence"] in confidence


def test_a_healthy_job_is_healthy(tmp_path: Path) -> None:
    report = diagnosed(unpacked(RUNS["healthy"], tmp_path), tmp_path)
    assert (report["status"], report["verdict"]) == ("healthy", None)


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
    at_fault = {0, 1} if name in {"same_gpu", "no_interface"} else {1}  # these are wrong on both
    assert set(named(verdict).get("ranks", [1])) <= at_fault
    assert named(verdict).get("nodes", [0]) == [0]
