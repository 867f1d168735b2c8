"""Recorded runs of PyTorch 2.13 with Gloo (two torchrun agents, four ranks) and of JAX (three processes) on CPUs.

`gloo_*`: a loop of all_reduce and all_gather with a time-out of 12 s and one fault at iteration 20; `start_*`:
`init_process_group` that cannot succeed; `jax_*`: `jax.distributed` with process_allgather.  Only what the processes
printed was kept.
"""

from pathlib import Path

import pytest

from tests.cases import cases
from tests.recorded.test_runs import judge

RUNS = Path(__file__).resolve().parents[1] / "fixtures" / "runs_cpu"

TRUTH: dict[str, tuple[set[str], list[int] | None]] = {
    "gloo_exception": ({"DEAD"}, [2]),
    "gloo_key": ({"DEAD"}, [1]),
    "gloo_sigkill": ({"DEAD"}, [3]),
    "gloo_segv": ({"DEAD"}, [1]),
    "gloo_sigstop": ({"CPU-STUCK"}, [1]),
    "gloo_sleep": ({"CPU-STUCK", "CPU-BUSY"}, [2]),
    "gloo_early": ({"DESYNC-FLOW"}, [1]),
    "gloo_extra": ({"DESYNC-ARGS", "DESYNC-FLOW"}, None),  # Gloo's words tell that sizes differ, not whose is wrong
    "gloo_size": ({"DESYNC-ARGS", "DESYNC-FLOW"}, None),
    # Eight or four ranks with flight-recorder dumps of those that could still write one
    "gloo_sleep_8": ({"CPU-STUCK"}, [5]),
    "gloo_lock": ({"CPU-STUCK"}, [3]),
    "gloo_skip": ({"DESYNC-FLOW"}, None),  # rank 1; but rank 0 left nothing, and two of four are no majority
    "gloo_exit_0": ({"DESYNC-FLOW"}, [0]),
    "gloo_sysexit": ({"DEAD"}, [2]),
    "gloo_memory": ({"DEAD"}, [2]),
    "gloo_groups_exc": ({"DEAD"}, [1]),
    "gloo_tokenize": ({"CPU-BUSY"}, [0]),  # rank 0's progress bar is in the output of its node
    "gloo_monitored": ({"CPU-STUCK"}, [1]),
    "gloo_fingerprint": ({"DESYNC-ARGS"}, [2]),  # TORCH_DISTRIBUTED_DEBUG=DETAIL; float64 on rank 2
    "gloo_restart": ({"DEAD"}, [2]),  # started again, and the second attempt never got connected
    "gloo_restart_2": ({"DEAD"}, [2]),
    "start_absent": ({"START-ABSENT"}, [2]),
    "start_name": ({"START-NAME"}, [0, 1, 2, 3]),
    "start_port": ({"START-PATH"}, [0]),
    "start_iface": ({"START-NAME", "ENV-MISMATCH"}, [0, 1, 2, 3]),
    "jax_absent": ({"START-ABSENT"}, [1]),
    "jax_exc": ({"DEAD"}, [1]),
    "jax_kill": ({"DEAD"}, [1]),
    "jax_stop": ({"DEAD", "CPU-STUCK"}, [1]),  # a process without a heartbeat: stopped and dead look alike
}
HEALTHY = ("gloo_ok", "jax_ok", "gloo_eval", "gloo_term")
"""`gloo_eval`: rank 0 evaluates alone, the dumps were taken while the job moved.  `gloo_term`: ended from outside."""


def test_every_recorded_run_is_judged() -> None:
    assert {p.name.removesuffix(".tar.xz") for p in RUNS.iterdir()} == {*TRUTH, *HEALTHY}


@cases("name", sorted(TRUTH), parts=3)
def test_what_the_processes_printed_gives_class_and_culprit(name: str, tmp_path: Path) -> None:
    code, report = judge([RUNS / f"{name}.tar.xz"], tmp_path)
    classes, ranks = TRUTH[name]
    verdict = report["verdict"]
    assert (code, report["status"]) == (1, "fault")
    assert verdict["fault_class"] in classes, verdict
    assert verdict["culprits"]["ranks"] == (ranks or []), verdict


@pytest.mark.parametrize("name", HEALTHY)
def test_output_without_a_fault_accuses_nobody(name: str, tmp_path: Path) -> None:
    code, report = judge([RUNS / f"{name}.tar.xz"], tmp_path)
    assert (code, report["verdict"]) in {(0, None), (3, None)}
    assert [f for f in report["findings"] if f["severity"] in {"error", "blocker"}] == []


def test_the_interface_variable_is_named(tmp_path: Path) -> None:
    _, report = judge([RUNS / "start_iface.tar.xz"], tmp_path)
    assert report["verdict"]["culprits"]["variables"] == ["GLOO_SOCKET_IFNAME"]
