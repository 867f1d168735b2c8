"""Jobs of DDP, FSDP, pipelines and checkpoints on two H100s that failed, recorded by
benchmarks/record_gpu_frameworks.py: NCCL's logs, torchrun's output, the recorder's dumps and py-spy's stacks.

Of two ranks that differ no rank can tell which one is wrong; then the operation is named and no rank accused.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.recorded.archives import diagnosed, named, told, unpacked

FOLDER = Path(__file__).parents[1] / "fixtures" / "h100" / "frameworks"
RUNS = {path.name.removesuffix(".tar.xz"): path for path in sorted(FOLDER.glob("*.tar.xz"))}
HEALTHY = {"healthy_scary", "group_by_one"}

TRUTH: dict[str, tuple[str, str, dict[str, Any]]] = {
    # run -> fault class, confidence that is due, culprits
    "barrier_rank0": ("DESYNC-FLOW", "likely", {}),
    "both_recv": ("DESYNC-FLOW", "likely", {"ranks": [0, 1]}),
    "checkpoint_missing": ("DEAD", "certain", {"ranks": [1]}),
    "ddp_no_sync": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "disk_full": ("ENV-LIMIT", "certain", {"nodes": [0]}),
    "extra_reduce": ("DESYNC-FLOW", "likely", {}),
    "finally_barrier": ("DEAD", "certain", {"ranks": [1]}),
    "fsdp_raises": ("DEAD", "certain", {"ranks": [1]}),
    "fsdp_twice": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "gil": ("CPU-STUCK", "likely", {"ranks": [1]}),
    "groups_cross": ("DESYNC-FLOW", "likely", {}),
    "loader_dead": ("DEAD", "certain", {"ranks": [1]}),
    "loader_stuck": ("CPU-STUCK", "certain", {"ranks": [1]}),
    "object_alone": ("DESYNC-FLOW", "likely", {}),
    "oom_caught": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "p2p_sizes": ("DESYNC-ARGS", "likely", {}),
    "rank0_saves": ("CPU-STUCK", "likely", {"ranks": [0]}),
    "splits": ("DESYNC-ARGS", "likely", {"ranks": [0, 1]}),
    "stops_itself": ("CPU-STUCK", "likely", {"ranks": [1]}),
    "wrong_root": ("DESYNC-ARGS", "likely", {}),
}

ALONE: dict[tuple[str, str], str] = {
    # What NCCL's log of operations alone tells of runs whose other files tell something else.
    ("finally_barrier", "nccl."): "DESYNC-FLOW",  # the barrier in `finally` met the others' gradients
    ("object_alone", "out."): "DESYNC-FLOW",
}


def test_the_recordings_are_there() -> None:
    assert set(RUNS) == {*TRUTH, *HEALTHY}


@cases("name", sorted(TRUTH), parts=2)
def test_what_a_job_left_gives_the_verdict(name: str, tmp_path: Path) -> None:
    assert told(diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)) == TRUTH[name]


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_a_healthy_job_is_healthy(name: str, tmp_path: Path) -> None:
    report = diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)
    assert (report["status"], report["verdict"]) == ("healthy", None)


@cases("kind", ["nccl.", "out.", "fr_", "pyspy."])
@cases("name", sorted(RUNS), parts=9)
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
    assert name not in HEALTHY
    fault_class, _, culprits = TRUTH[name]
    assert verdict["fault_class"] == ALONE.get((name, kind), fault_class)
    at_fault = {0} if name == "disk_full" else set(culprits.get("ranks", []))  # the node is not known everywhere
    assert set(named(verdict).get("ranks", [])) <= at_fault
    assert named(verdict).get("nodes", [0]) == [0]
