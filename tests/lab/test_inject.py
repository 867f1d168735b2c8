"""Each kind of fault does what it says, in real ranks that talk over Gloo, at exactly the step that was asked for.

The full set is slow (some 5 s each); outside of it stand a few that together touch every part of the injector.
"""

import signal
from pathlib import Path
from typing import Any

import pytest

from fault_suite.machine import missing
from tests.lab.inject_job import NUM_STEPS, STALLED, Outcome, play

pytestmark = [pytest.mark.torch, pytest.mark.jobs]

slow = pytest.mark.slow
ALL_REDUCE = ("all_reduce", ((8,),), ("Float",))
BROADCAST = ("broadcast", ((4,),), ("Float",))


def steps_made(outcome: Outcome, rank: int) -> int:
    return outcome.words[rank].count(" took ")


def durations_ms(outcome: Outcome, rank: int) -> list[float]:
    return [float(line.split()[3]) * 1000 for line in outcome.words[rank].splitlines() if " took " in line]


def told(outcome: Outcome) -> Any:
    assert outcome.problems == []
    [truth] = outcome.truth
    assert truth.status == "injected", truth.why
    return truth


def test_a_skipped_collective_is_skipped_at_its_step_and_no_other(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["skip rank=1 step=5"])
    truth = told(outcome)
    assert (truth.rank, truth.step, truth.op) == (1, 5, "all_reduce")
    assert outcome.codes == {0: STALLED, 1: STALLED}
    assert outcome.operations(0) == [ALL_REDUCE, BROADCAST] * 5 + [ALL_REDUCE]
    assert outcome.operations(1) == [ALL_REDUCE, BROADCAST] * 5 + [BROADCAST]


@pytest.mark.slow
def test_a_stopped_process_is_stopped_and_the_driver_lets_it_go_on(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["sigstop rank=1 step=5 duration_s=0.6"], driver=True)
    assert told(outcome).step == 5
    assert outcome.codes == {0: 0, 1: 0}
    assert max(durations_ms(outcome, 0)) > 500


@pytest.mark.slow
def test_another_dtype_is_silent_and_a_slow_rank_is_slower_by_so_much(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["dtype rank=1 step=5", "slow rank=1 step=7 ms=60"])
    assert outcome.problems == []
    assert [(truth.status, truth.step) for truth in outcome.truth] == [("injected", 5), ("injected", 7)]
    assert outcome.truth[0].detail == "int32 for float32"
    assert outcome.codes == {0: 0, 1: 0}
    differing = [i for i, (a, b) in enumerate(zip(outcome.operations(0), outcome.operations(1), strict=True)) if a != b]
    assert differing == [10]  # only the recorder knows
    assert outcome.operations(1)[10] == ("all_reduce", ((8,),), ("Int",))
    late = durations_ms(outcome, 0)[10:]
    assert sorted(late)[len(late) // 2] > 70
    assert min(durations_ms(outcome, 0)[:6]) < 60


@slow
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("kill rank=1 step=5", -signal.SIGKILL),
        ("kill rank=1 step=5 where=inside", -signal.SIGKILL),
        ("kill rank=1 step=5 signal=TERM", -signal.SIGTERM),
        ("abort rank=1 step=5", -signal.SIGABRT),
        ("segfault rank=1 step=5", -signal.SIGSEGV),
        ("exit rank=1 step=5 how=at_once code=3", 3),
        ("exit rank=1 step=5 how=at_once", 0),
    ],
)
def test_a_rank_ends_as_asked(tmp_path: Path, fault: str, code: int) -> None:
    outcome = play(tmp_path, [fault])
    assert told(outcome).step == 5
    assert outcome.codes[1] == code
    assert 4 <= steps_made(outcome, 1) <= 6
    assert outcome.codes[0] != 0


@slow
def test_an_orderly_exit_and_an_exception_leave_through_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "exit").mkdir()
    assert play(tmp_path / "exit", ["exit rank=1 step=5"]).codes[1] in {0, None}  # its end may wait for rank 0
    outcome = play(tmp_path, ["exception rank=1 step=5 message=out_of_luck"])
    assert "RuntimeError: out_of_luck" in outcome.words[1]
    assert told(outcome).step == 5


@slow
def test_an_exception_that_the_script_swallows_skips_the_call(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["exception rank=1 step=5 where=op"], mode="tolerant")
    assert "skipping step 5: injected by allready lab" in outcome.words[1]
    assert outcome.operations(1)[-1] == BROADCAST


@slow
def test_a_swallowed_exception_warns_and_skips(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["swallow rank=1 step=5 op=broadcast"])
    assert "step 5 failed, batch skipped" in outcome.words[1]
    assert outcome.operations(1)[-1] == ALL_REDUCE
    assert told(outcome).op == "broadcast"


@slow
def test_one_collective_more(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["extra rank=1 step=5"])
    assert outcome.operations(1)[-2:] == [ALL_REDUCE, ALL_REDUCE]
    assert told(outcome).step == 5


@slow
def test_two_collectives_change_places(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["swap rank=1 step=5"])
    assert told(outcome).detail == "broadcast before all_reduce"
    assert outcome.operations(1)[-1] == BROADCAST
    assert outcome.operations(0)[-1] == ALL_REDUCE


@slow
def test_groups_in_another_order(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["swap rank=1 step=5 op=broadcast"], mode="groups")
    assert told(outcome).op == "broadcast"
    assert outcome.operations(1)[-1] == ("all_reduce", ((3,),), ("Float",))


@slow
def test_calls_that_are_all_alike_cannot_be_swapped_and_that_is_told(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["swap rank=1 step=2 op=all_reduce"], mode="ddp")
    [truth] = outcome.truth
    assert (truth.status, outcome.codes) == ("not_injected", {0: 0, 1: 0})


@slow
@pytest.mark.parametrize(("fault", "elements"), [("elements=-2", 6), ("factor=2", 16)])
def test_another_shape(tmp_path: Path, fault: str, elements: int) -> None:
    outcome = play(tmp_path, [f"shape rank=1 step=5 {fault}"])
    assert told(outcome).detail == f"{elements} elements for 8"
    assert 0 not in outcome.codes.values()


@slow
def test_another_root(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["root rank=0 step=5"])
    assert (told(outcome).op, told(outcome).detail) == ("broadcast", "root 1 for 0")
    assert outcome.codes[0] != 0


@slow
def test_splits_that_do_not_fit(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["splits rank=1 step=5"], mode="all_to_all")
    assert told(outcome).op == "all_to_all_single"
    assert outcome.codes[1] != 0


@slow
def test_another_tag_is_never_received(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["tag rank=1 step=5"], mode="p2p")
    assert (told(outcome).op, told(outcome).detail) == ("recv", "tag 1 for 0")
    assert outcome.codes == {0: STALLED, 1: STALLED}


@slow
@pytest.mark.parametrize(
    ("fault", "state"),
    [("sigstop rank=1 step=5", "T"), ("gil rank=1 step=5", "S"), ("disk rank=1 step=5", "D"),
     ("read rank=1 step=5", "S"), ("lock rank=1 step=5", "S"), ("sleep rank=1 step=5", "S"),
     ("busy rank=1 step=5", "R")],
)  # fmt: skip
def test_a_rank_that_stays_away_is_in_the_state_that_was_asked_for(tmp_path: Path, fault: str, state: str) -> None:
    outcome = play(tmp_path, [fault])
    assert told(outcome).step == 5
    assert outcome.operations(0) == [ALL_REDUCE, BROADCAST] * 5 + [ALL_REDUCE]
    if fault.startswith(("sigstop", "gil")):
        assert outcome.codes[1] is None  # its own watcher could not run
    else:
        assert outcome.operations(1) == [ALL_REDUCE, BROADCAST] * 5
    if not fault.startswith("busy"):  # which may just then be waiting for the interpreter's lock
        assert state in outcome.history[1]


@slow
@pytest.mark.parametrize("kind", ["gil", "lock", "busy", "sleep", "save"])
def test_with_a_duration_the_rank_comes_back(tmp_path: Path, kind: str) -> None:
    outcome = play(tmp_path, [f"{kind} rank=1 step=5 duration_s=0.5"])
    assert outcome.codes == {0: 0, 1: 0}
    assert max(durations_ms(outcome, 0)) > 400


@slow
def test_loader_workers_are_stopped_or_killed(tmp_path: Path) -> None:
    for how in ("stop", "kill"):
        (tmp_path / how).mkdir()
        outcome = play(tmp_path / how, [f"loader rank=1 step=5 how={how}"], mode="loader")
        assert len(told(outcome).children) == 1
        assert outcome.codes[1] == (STALLED if how == "stop" else 1)


@slow
def test_a_rank_without_workers_has_none_to_kill(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["loader rank=1 step=5"])
    assert (outcome.truth[0].status, outcome.truth[0].why) == ("not_injected", "this rank has no worker processes")
    assert outcome.codes == {0: 0, 1: 0}


@slow
def test_the_kernel_kills_what_uses_too_much_memory_and_the_group_is_removed(tmp_path: Path) -> None:
    if (why := missing("memory")) is not None:
        pytest.skip(why)
    outcome = play(tmp_path, ["oom rank=1 step=5 limit_bytes=32M"], driver=True)
    [group] = told(outcome).cleanup
    assert outcome.codes[1] == -signal.SIGKILL
    assert not Path(group).exists()


@slow
@pytest.mark.parametrize("percent", [3, 90])
def test_a_quota_holds_a_rank_back_and_the_group_is_removed(percent: int, tmp_path: Path) -> None:
    """Also one that is more than the rank gets of a CPU."""
    if (why := missing("cpu")) is not None:
        pytest.skip(why)
    outcome = play(tmp_path, [f"quota rank=1 step=3 percent={percent}"], driver=True)
    [group] = told(outcome).cleanup
    assert max(durations_ms(outcome, 0)[4:]) > 60
    assert not Path(group).exists()


@slow
def test_pulses_stop_a_rank_again_and_again(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["pulses rank=1 step=3 stop_ms=100 period_ms=200"], driver=True)
    assert sum(ms > 90 for ms in durations_ms(outcome, 0)) >= 2
    assert outcome.codes == {0: 0, 1: 0}


@slow
def test_a_neighbour_computes_on_the_ranks_cpu_and_ends_with_the_driver(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["neighbour rank=1 step=3 processes=2"], driver=True)
    assert told(outcome).cpu is not None
    assert not [p for p in Path("/proc").iterdir() if p.name.isdecimal() and b"sys.argv[1])" in _cmdline(p)]


def _cmdline(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@slow
def test_imbalance_and_garbage_collection_go_round(tmp_path: Path) -> None:
    for fault in ("rotate rank=all step=3 ms=80", "gc_pause rank=all step=3 every=3"):
        folder = tmp_path / fault.split()[0]
        folder.mkdir()
        outcome = play(folder, [fault])
        assert {t.rank for t in outcome.truth} == {0, 1}
        assert sum(ms > 60 for ms in durations_ms(outcome, 0)[4:]) >= 3


@slow
def test_a_slow_loader_delays_every_batch(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["slow_loader rank=1 step=5 ms=60"], mode="loader")
    late = durations_ms(outcome, 0)[8:]
    assert sorted(late)[len(late) // 2] > 70


@slow
@pytest.mark.parametrize("kind", ["skip", "extra"])
def test_ddp_reduces_from_native_code_and_can_be_broken_too(tmp_path: Path, kind: str) -> None:
    outcome = play(tmp_path, [f"{kind} rank=1 step=5"], mode="ddp")
    assert told(outcome).step == 5
    assert outcome.codes[0] != 0


@slow
def test_a_shape_that_cannot_be_changed_is_told(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["shape rank=1 step=5"], mode="ddp")
    assert outcome.truth[0].status == "not_injected"
    assert outcome.codes == {0: 0, 1: 0}


@slow
def test_without_an_optimizer_collectives_count(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["kill rank=1 step=6"], mode="no_optimizer")
    assert told(outcome).step == 6
    assert outcome.codes[1] == -signal.SIGKILL
    assert steps_made(outcome, 1) in {2, 3}  # two collectives each


@slow
def test_a_rank_dies_at_its_import_before_anything_else(tmp_path: Path) -> None:
    outcome = play(tmp_path, ["exception rank=1 step=import message=no_such_library"], timeout_s=12)
    assert told(outcome).step == 0
    assert outcome.codes[1] == 1
    assert "no_such_library" in outcome.words[1]


@slow
def test_a_fault_that_is_never_due_changes_nothing(tmp_path: Path) -> None:
    outcome = play(tmp_path, [f"kill rank=1 step={NUM_STEPS + 5}"])
    assert outcome.codes == {0: 0, 1: 0}
    assert steps_made(outcome, 1) == NUM_STEPS
