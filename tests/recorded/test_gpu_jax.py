"""JAX jobs on two nodes with an H100 each that failed, recorded by benchmarks/record_gpu_jax.py: NCCL's logs, the
output of torchrun and of the process on each node, and py-spy's stacks.

Of two ranks that differ no rank can tell which one is wrong; then the operation is named and no rank accused.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.recorded.archives import by_kind, diagnosed, named, told, unpacked

FOLDER = Path(__file__).parents[1] / "fixtures" / "h100" / "jax"
RUNS = {path.name.removesuffix(".tar.xz"): path for path in sorted(FOLDER.glob("*.tar.xz"))}
HEALTHY = {"compiles", "healthy", "late", "num_processes", "order", "saves", "sigterm", "slow"}
UNKNOWN = {"first_collective"}  # two stacks, and no line of any rank
KINDS = ("nccl.", "out.", "pyspy.")

TRUTH: dict[str, tuple[str, str, dict[str, Any]]] = {
    # run -> fault class, confidence that is due, culprits
    "absent": ("START-ABSENT", "likely", {"nodes": [1]}),
    "assert_equal": ("DEAD", "certain", {"ranks": [0, 1]}),  # both raised that the configurations differ
    "barrier_name": ("DESYNC-FLOW", "certain", {}),
    "broadcast_alone": ("DESYNC-FLOW", "likely", {}),
    "dies_first": ("DEAD", "certain", {"ranks": [0]}),
    "dtype": ("DESYNC-ARGS", "likely", {}),
    "exception": ("DEAD", "certain", {"ranks": [1]}),
    "exits": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "interface": ("START-NAME", "certain", {"nodes": [1], "variables": ["NCCL_SOCKET_IFNAME"]}),
    "os_exit": ("DEAD", "likely", {"ranks": [1]}),
    "out_of_memory": ("DEAD", "certain", {"ranks": [1]}),
    "port_taken": ("START-PATH", "likely", {"nodes": [0]}),
    "same_id": ("ENV-MISMATCH", "certain", {}),
    "save_fails": ("DEAD", "certain", {"ranks": [0]}),
    "segfault": ("DEAD", "certain", {"ranks": [1]}),
    "shape": ("DESYNC-ARGS", "likely", {}),
    "shuts_down": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "sigkill": ("DEAD", "certain", {"ranks": [1]}),
    "sigkill_first": ("DEAD", "certain", {"ranks": [0]}),
    "sigstop": ("CPU-STUCK", "likely", {"ranks": [1]}),
    "sigstop_first": ("CPU-STUCK", "likely", {"ranks": [0]}),
    "skips": ("DESYNC-FLOW", "likely", {}),
    "sleeps": ("CPU-STUCK", "likely", {"ranks": [1]}),
    "waits_for_lock": ("CPU-STUCK", "likely", {"ranks": [1]}),
    "wrong_name": ("START-ABSENT", "likely", {}),  # a wrong address and a process that is missing read the same
    "wrong_port": ("START-ABSENT", "likely", {}),
}

ALONE: dict[tuple[str, str], str] = {
    # Without NCCL's log no rank tells that the process that the launcher had to end is the one that was missed.
    ("sigstop", "out."): "DEAD"
}


def test_the_recordings_are_there() -> None:
    assert set(RUNS) == {*TRUTH, *HEALTHY, *UNKNOWN}


@cases("name", sorted(TRUTH), parts=3)
def test_what_a_job_left_gives_the_verdict(name: str, tmp_path: Path) -> None:
    assert told(diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)) == TRUTH[name]


@cases("name", sorted(HEALTHY))
def test_a_healthy_job_is_healthy(name: str, tmp_path: Path) -> None:
    report = diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)
    assert (report["status"], report["verdict"]) == ("healthy", None)


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_what_nobody_can_know_is_unknown(name: str, tmp_path: Path) -> None:
    report = diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)
    assert (report["status"], report["verdict"]) == ("unknown", None)


@cases("name", sorted(RUNS), parts=4)
def test_one_kind_of_evidence_alone_accuses_nobody_wrongly(name: str, tmp_path: Path) -> None:
    for kind, verdict in by_kind(RUNS[name], KINDS, tmp_path):
        assert name not in HEALTHY | UNKNOWN
        fault_class, _, culprits = TRUTH[name]
        assert verdict["fault_class"] == ALONE.get((name, kind), fault_class)
        for who, numbers in named(verdict).items():
            # Which rank a node's output is of, NCCL's logs tell; which node has a wrong interface, only its own
            # message.
            allowed = {*culprits.get(who, []), *(culprits.get("ranks", []) if who == "nodes" else [])}
            assert set(numbers) <= allowed or (name, kind) == ("interface", "out."), (kind, who)
