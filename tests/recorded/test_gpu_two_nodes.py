"""Jobs on two nodes with an H100 each, under two agents of torchrun, recorded by `benchmarks/record_gpu_frameworks.py
--nodes 2` and `benchmarks/record_gpu_failed.py --nodes 2`.  The agent of the other node goes on when a rank fails, so
that NCCL's sockets, the watchdog and the end by hand show other sequences of events than on one node.

Of two ranks that differ no rank can tell which one is wrong; then the operation is named and no rank accused.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.recorded.archives import by_kind, diagnosed, named, told, unpacked

FOLDER = Path(__file__).parents[1] / "fixtures" / "h100" / "two_nodes"
RUNS = {path.name.removesuffix(".tar.xz"): path for path in sorted(FOLDER.glob("*.tar.xz"))}
HEALTHY = {"group_by_one", "healthy_plain", "healthy_scary"}
KINDS = ("nccl.", "out.", "fr_", "pyspy.")

TRUTH: dict[str, tuple[str, str, dict[str, Any]]] = {
    # run -> fault class, confidence that is due, culprits
    "barrier_rank0": ("DESYNC-FLOW", "likely", {}),
    "both_recv": ("DESYNC-FLOW", "likely", {}),
    "checkpoint_missing": ("DEAD", "certain", {"ranks": [1]}),
    "cuda_oom": ("DEAD", "certain", {"ranks": [1]}),
    "ddp_no_sync": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "device_assert": ("DEAD", "certain", {"ranks": [1]}),
    "disk_full": ("ENV-LIMIT", "certain", {"nodes": [0]}),
    "dtype": ("DESYNC-ARGS", "likely", {}),
    "exception": ("DEAD", "certain", {"ranks": [1]}),
    "exits_early": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "extra_reduce": ("DESYNC-FLOW", "likely", {}),
    "fewer_steps": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "finally_barrier": ("DESYNC-FLOW", "likely", {}),
    "fsdp_raises": ("DEAD", "certain", {"ranks": [1]}),
    "fsdp_twice": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "gil": ("CPU-STUCK", "likely", {"ranks": [1]}),
    "groups_cross": ("DESYNC-FLOW", "likely", {}),
    "loader_dead": ("DEAD", "certain", {"ranks": [1]}),
    "loader_stuck": ("CPU-STUCK", "certain", {"ranks": [1]}),
    "never_joins": ("START-ABSENT", "possible", {"ranks": [1], "nodes": [1]}),
    "no_interface": ("START-NAME", "likely", {"nodes": [0, 1], "variables": ["NCCL_SOCKET_IFNAME"]}),
    "object_alone": ("DESYNC-FLOW", "likely", {}),
    "oom_caught": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "order": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "os_exit": ("DEAD", "likely", {"ranks": [1]}),  # os._exit(0) tears nothing down, and its launcher says nothing
    "p2p_sizes": ("DESYNC-ARGS", "likely", {}),
    "rank0_saves": ("CPU-STUCK", "likely", {"ranks": [0]}),
    "segfault": ("DEAD", "certain", {"ranks": [1]}),
    "send_alone": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "sigkill": ("DEAD", "certain", {"ranks": [1]}),
    "size": ("DESYNC-ARGS", "likely", {}),
    "skip": ("DESYNC-FLOW", "likely", {"ranks": [1]}),
    "sleeps": ("CPU-STUCK", "likely", {"ranks": [1], "nodes": [1]}),
    "slow": ("SLOW-COMP", "likely", {"ranks": [1]}),
    "spin": ("NET-BROKEN", "possible", {}),  # a kernel that does not end looks like a network that does not carry
    "splits": ("DESYNC-ARGS", "likely", {}),
    "stops_itself": ("CPU-STUCK", "likely", {"ranks": [1], "nodes": [1]}),
    "wrong_root": ("DESYNC-ARGS", "likely", {}),
}


def test_the_recordings_are_there() -> None:
    assert set(RUNS) == {*TRUTH, *HEALTHY}


@cases("name", sorted(TRUTH), parts=7)
def test_what_a_job_left_gives_the_verdict(name: str, tmp_path: Path) -> None:
    assert told(diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)) == TRUTH[name]


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_a_healthy_job_is_healthy(name: str, tmp_path: Path) -> None:
    report = diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)
    assert (report["status"], report["verdict"]) == ("healthy", None)


def test_logs_with_times_would_have_shown_a_slow_rank(tmp_path: Path) -> None:
    report = diagnosed(unpacked(RUNS["healthy_plain"], tmp_path), tmp_path)
    assert "SLW001" not in {n["code"] for n in report["not_checked"]}


ALONE: dict[tuple[str, str], tuple[str, set[int]]] = {
    # NCCL's log alone shows that a process was gone right after its last operation; why, its output tells.
    ("disk_full", "nccl."): ("DEAD", {0}),
    ("splits", "nccl."): ("DESYNC-ARGS", {0, 1}),
}


@cases("name", sorted(RUNS), parts=7)
def test_one_kind_of_evidence_alone_accuses_nobody_wrongly(name: str, tmp_path: Path) -> None:
    for kind, verdict in by_kind(RUNS[name], KINDS, tmp_path):
        assert name not in HEALTHY, kind
        fault_class, at_fault = ALONE.get((name, kind), (TRUTH[name][0], set(TRUTH[name][2].get("ranks", []))))
        assert verdict["fault_class"] == fault_class, kind
        assert set(named(verdict).get("ranks", [])) <= (at_fault or {0 if name == "disk_full" else -1}), kind
        assert set(named(verdict).get("nodes", [])) <= set(TRUTH[name][2].get("nodes", [])), kind
