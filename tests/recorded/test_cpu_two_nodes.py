"""What jobs with Gloo printed on two nodes of one rank each, recorded by `benchmarks/record_gpu_frameworks.py --cpu
--nodes 2` and `benchmarks/record_gpu_failed.py --cpu --nodes 2` with PyTorch 2.13; paths were shortened afterwards.

Only the two agents' outputs: no line counts operations.  Where both ranks wait in one function, no rank can tell more.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.recorded.archives import diagnosed, named, told, unpacked

FOLDER = Path(__file__).parents[1] / "fixtures" / "runs_cpu_two_nodes"
RUNS = {path.name.removesuffix(".tar.xz"): path for path in sorted(FOLDER.glob("*.tar.xz"))}
UNKNOWN = {"healthy_scary", "p2p_sizes", "slow"}
"""They ended with exit code 0, and no rank says so."""

TRUTH: dict[str, tuple[str, str, dict[str, Any]]] = {
    # run -> fault class, confidence that is due, culprits
    "checkpoint_missing": ("DEAD", "certain", {"ranks": [1]}),
    "cuda_oom": ("DEAD", "certain", {"ranks": [1]}),
    "ddp_no_sync": ("DESYNC-FLOW", "likely", {"nodes": [1]}),
    "device_assert": ("DEAD", "certain", {"ranks": [1]}),
    "disk_full": ("ENV-LIMIT", "certain", {"nodes": [0]}),
    "dtype": ("DESYNC-ARGS", "likely", {}),
    "exception": ("DEAD", "certain", {"ranks": [1]}),
    "exits_early": ("DESYNC-FLOW", "likely", {"nodes": [1]}),
    "extra_reduce": ("DESYNC-FLOW", "likely", {}),
    "fewer_steps": ("DESYNC-FLOW", "likely", {"nodes": [1]}),
    "finally_barrier": ("DEAD", "certain", {"ranks": [1]}),
    "fsdp_raises": ("DEAD", "certain", {"ranks": [1]}),
    "gil": ("CPU-STUCK", "likely", {"nodes": [1]}),
    "group_by_one": ("CPU-STUCK", "likely", {"nodes": [0], "ranks": [0]}),  # it waits in new_group, alone
    "loader_dead": ("DEAD", "certain", {"ranks": [1]}),
    "loader_stuck": ("CPU-STUCK", "likely", {"nodes": [1]}),
    "oom_caught": ("DESYNC-FLOW", "likely", {"nodes": [1]}),
    "os_exit": ("DESYNC-FLOW", "likely", {"nodes": [1]}),
    "rank0_saves": ("CPU-STUCK", "likely", {"nodes": [0], "ranks": [0]}),
    "segfault": ("DEAD", "certain", {"ranks": [1]}),
    "sigkill": ("DEAD", "certain", {"ranks": [1]}),
    "size": ("DESYNC-ARGS", "likely", {}),
    "sleeps": ("CPU-STUCK", "likely", {"nodes": [1]}),
    "splits": ("DESYNC-ARGS", "certain", {"ranks": [1]}),
    "stops_itself": ("CPU-STUCK", "likely", {"nodes": [1]}),
}

POSSIBLE: dict[str, dict[str, Any]] = {
    # run -> whom a verdict that is only possible may name
    "barrier_rank0": {}, "both_recv": {}, "fsdp_twice": {}, "groups_cross": {}, "never_joins": {"nodes": [1]},
    "object_alone": {}, "order": {}, "send_alone": {}, "skip": {}, "wrong_root": {},
}  # fmt: skip


def test_the_recordings_are_there() -> None:
    assert set(RUNS) == {*TRUTH, *POSSIBLE, *UNKNOWN}


@cases("name", sorted(TRUTH), parts=4)
def test_what_two_agents_printed_gives_the_verdict(name: str, tmp_path: Path) -> None:
    assert told(diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)) == TRUTH[name]


@cases("name", sorted(POSSIBLE), parts=2)
def test_what_is_only_possible_accuses_nobody_wrongly(name: str, tmp_path: Path) -> None:
    verdict = diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)["verdict"]
    assert (verdict["confidence"], named(verdict)) == ("possible", POSSIBLE[name])


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_output_of_a_job_that_ran_through_shows_no_fault(name: str, tmp_path: Path) -> None:
    report = diagnosed(unpacked(RUNS[name], tmp_path), tmp_path)
    assert (report["status"], report["verdict"]) == ("unknown", None)
