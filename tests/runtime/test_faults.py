"""Faults in real jobs over Gloo: all survivors have one outcome, name the right rank and go on with right sums."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from allready.runtime.agreement import FREEZE_S
from allready.runtime.group import can_reconfigure
from allready.runtime.session import MARGIN_S
from tests.cases import cases
from tests.clock import until
from tests.runtime.job import Job

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]


def fault(rank: int, kind: str, step: int = 10, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "kind": kind, "step": step, **more}


def recovered(job: Job, times: dict[int, int]) -> bool:
    """Whether these ranks have recovered so often."""
    return all(sum(e["event"] == "recovered" for e in job.events(r)) == n for r, n in times.items())


def agreed(job: Job, ranks: list[int]) -> dict[str, Any]:
    """The one recovery of these ranks."""
    found = [{k: v for k, v in job.last(r, "recovered").items() if k not in {"at_s", "rank"}} for r in ranks]
    assert all(f == found[0] for f in found), found
    return found[0]


LOST = [
    ("kill", 2, "RTM001"),
    ("kill", 0, "RTM001"),
    ("stop", 2, "RTM003"),
    ("crash", 1, "RTM002"),
    ("exit", 2, "RTM004"),
]


@cases("kind, victim, code", LOST[1:3], parts=2)
def test_survivors_agree_and_go_on_without_the_lost_rank(kind: str, victim: int, code: str, tmp_path: Path) -> None:
    survivors_go_on(3, kind, victim, code, tmp_path)


@pytest.mark.slow
@cases("kind, victim, code", LOST, parts=5)
def test_so_do_three_survivors(kind: str, victim: int, code: str, tmp_path: Path) -> None:
    survivors_go_on(4, kind, victim, code, tmp_path)


def survivors_go_on(num_ranks: int, kind: str, victim: int, code: str, folder: Path) -> None:
    with Job(folder, num_ranks, faults=[fault(victim, kind)]) as job:
        others = [r for r in range(num_ranks) if r != victim]
        job.wait(others)
        found = agreed(job, others)
        assert (found["code"], found["culprits"], found["members"]) == (code, [victim], others)
        assert found["limited"] == others
        assert all(job.last(r, "done")["steps"] == 30 for r in others)


def test_all_operations_go_on_with_large_tensors_among_those_that_are_left(tmp_path: Path) -> None:
    with Job(tmp_path, 4, faults=[fault(2, "kill", 2)], steps=12, large=1 << 18) as job:
        job.wait([0, 1, 3])
        assert agreed(job, [0, 1, 3])["members"] == [0, 1, 3]
        assert [job.last(r, "done")["steps"] for r in (0, 1, 3)] == [12] * 3
        assert f"pid {job.processes[2].pid}) ended without leaving the job" in job.last(0, "failed")["text"]


def test_a_call_that_differs_is_named_by_all_before_it_begins_and_all_go_on(tmp_path: Path) -> None:
    """Gloo would end the process of a rank, or sum wrongly."""
    ways = ["size", "dtype", "argument", "operation", "skip", "twice", "barrier"]
    faults = [fault(1, "differ", 11 + 2 * n, how=how) for n, how in enumerate(ways)]
    with Job(tmp_path, 3, faults=faults, varied=True, timeout_s=60.0) as job:
        job.wait([0, 1, 2])
        for rank in range(3):
            found = [e for e in job.events(rank) if e["event"] == "failed"]
            assert [e["code"] for e in found] == [
                "RTM008", "RTM008", "RTM008", "RTM007", "RTM007", "RTM007", "RTM007",
            ], job.errors(rank)  # fmt: skip
            assert all(e["culprits"] == [1] and e["blocked_s"] < 20.0 for e in found), found
            assert job.last(rank, "recovered")["members"] == [0, 1, 2]
            assert job.last(rank, "done")["steps"] == 30


def test_a_rank_that_lives_is_waited_for_and_all_go_on(tmp_path: Path) -> None:
    is_waited_for("sleep", "RTM005", tmp_path)


@pytest.mark.slow
def test_so_is_one_that_raised(tmp_path: Path) -> None:
    is_waited_for("raise", "RTM002", tmp_path)


def is_waited_for(kind: str, code: str, folder: Path) -> None:
    with Job(folder, 3, faults=[fault(2, kind, s=3.0)]) as job:
        job.wait([0, 1, 2])
        found = agreed(job, [0, 1, 2])
        assert (found["code"], found["culprits"], found["members"]) == (code, [2], [0, 1, 2])
        assert [job.last(r, "done")["steps"] for r in range(3)] == [30] * 3


def test_a_rank_that_dies_while_the_group_forms_again_does_not_hold_the_others_up(tmp_path: Path) -> None:
    dies_while_forming("kill_forming", 5.0, tmp_path)


@pytest.mark.slow
def test_nor_does_one_that_dies_later_while_it_forms(tmp_path: Path) -> None:
    dies_while_forming("kill_forming_later", 20.0, tmp_path)


def dies_while_forming(kind: str, within_s: float, folder: Path) -> None:
    """Not for the 50 s that Gloo would wait for its connections; 0.2 and 10 s at most where nothing else runs."""
    faults = [fault(2, kind, 2), fault(1, "raise", 5)]
    with Job(folder, 4, faults=faults) as job:
        others = [0, 1, 3]
        job.wait(others)
        found = agreed(job, others)
        assert (found["members"], found["code"], found["culprits"]) == (others, "RTM001", [2])
        assert [e["code"] for e in job.events(0) if e["event"] == "failed"] == ["RTM002"]  # once, that of rank 1
        for rank in others:
            assert job.last(rank, "recovered")["at_s"] - job.last(rank, "failed")["at_s"] < within_s


@pytest.mark.parametrize(
    ("kind", "code", "culprit", "within_s"),
    [
        pytest.param("stop_recovering", "RTM002", 1, 60.0, marks=pytest.mark.slow),
        pytest.param("stop_forming", "RTM003", 2, 8.0, marks=pytest.mark.slow),
        ("stop_forming_later", "RTM003", 2, 8.0),
    ],
)
def test_nor_does_one_that_stops_before_or_while_it_forms(
    kind: str, code: str, culprit: int, within_s: float, tmp_path: Path
) -> None:
    """Not until the limit of `recover`, nor for the 10 s in which Gloo connects; it learns what became of it.

    5 s before it comes to `recover`: there its script may save its state.
    """
    faults = [fault(2, kind, 2), fault(1, "raise", 5)]
    with Job(tmp_path, 4, faults=faults, recover_s=1000.0) as job:
        others = [0, 1, 3]
        job.wait(others)
        found = agreed(job, others)
        assert (found["members"], found["code"], found["culprits"]) == (others, code, [culprit])
        for rank in others:
            assert job.last(rank, "recovered")["at_s"] - job.last(rank, "failed")["at_s"] < within_s
            assert job.processes[rank].poll() == 0, job.errors(rank)  # with a thread left in Gloo
        job.wake(2)
        job.wait([2])
        assert job.last(2, "ended")["error"] in {"RankExcluded", "HubLost"}  # the hub ends 2 s after the last rank


@pytest.mark.parametrize("ends", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_group_that_was_made_anew_but_did_not_form_is_not_the_one_from_before(ends: int, tmp_path: Path) -> None:
    """Rank 0 goes with its store, so rank 1 opens another and all make the group anew; one ends meanwhile."""
    with Job(tmp_path, 4, faults=[fault(ends, "kill_forming", 2), fault(0, "kill", 5)]) as job:
        others = [r for r in (1, 2, 3) if r != ends]
        job.wait(others)
        found = agreed(job, others)
        assert (found["members"], found["is_same"]) == (others, False)


@pytest.mark.slow
def test_a_rank_that_wakes_up_after_the_others_have_ended_gets_the_failure_and_ends_well(tmp_path: Path) -> None:
    how: dict[str, Any] = {"rejoin": True, "recover_s": 1000.0}  # it learns at once that no rank is left
    with Job(tmp_path, 3, faults=[fault(2, "stop")], steps=200, pace_s=0.02, **how) as job:
        job.wait([0, 1])
        assert agreed(job, [0, 1])["members"] == [0, 1]
        job.wake(2)
        job.wait([2])
        assert job.last(2, "failed")["code"] == "RTM003"
        assert not job.has(2, "ended")  # it makes no step more
        assert job.processes[2].poll() == 0, job.errors(2)


def test_a_rank_that_wakes_up_and_one_that_was_started_again_join_the_loop_of_the_others(tmp_path: Path) -> None:
    """The members let them in between two steps, and what follows a step runs on all or on none."""
    faults = [fault(2, "stop"), fault(1, "kill", 30)]
    with Job(tmp_path, 3, script="loop_rank.py", faults=faults, pace_s=0.02, steps=50, least=3, timeout_s=0.5) as job:
        until(partial(recovered, job, {0: 1, 1: 1}), 100.0)
        job.wake(2)
        until(partial(recovered, job, {0: 3, 2: 2}), 60.0)
        joined = [e for e in job.events(0) if e["event"] == "recovered"][1]
        assert (joined["members"], joined["joined"], joined["cause"]) == ([0, 1, 2], [2], "joins")
        assert joined["is_same"] is can_reconfigure()
        job.restart(1)
        job.wait([0, 1, 2])
        found = agreed(job, [0, 2])
        assert (found["members"], found["joined"], found["cause"]) == ([0, 1, 2], [1], "joins")
        assert job.last(1, "recovered")["step"] == found["step"]
        followed = [{e["step"] for e in job.events(r) if e["event"] == "followed"} for r in range(3)]
        assert followed[0] == set(range(5, job.last(0, "done")["steps"] + 1, 5))
        assert followed[0] >= followed[1] | followed[2]


def test_a_loop_ends_where_a_rank_raises_in_every_step_after_the_others_have_done_it(tmp_path: Path) -> None:
    """Each such step counts, since the others' state is that far; but no step is done without a failure any more."""
    with Job(tmp_path, 3, script="loop_rank.py", always_raises=1, steps=10**6) as job:
        job.wait([0, 1, 2])
        recovered = [len([e for e in job.events(r) if e["event"] == "recovered"]) for r in range(3)]
        assert recovered == [5, 5, 5]  # max_failures
        assert job.last(1, "ended")["error"] == "ValueError"
        for rank in (0, 2):
            assert job.last(rank, "ended")["error"] == "CollectiveFailed"
            assert "ValueError: made by the test" in job.last(rank, "ended")["text"]


@pytest.mark.parametrize("is_plain", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_rank_that_lives_but_does_not_come_is_left_and_joins_when_it_does(is_plain: bool, tmp_path: Path) -> None:
    """The others do not wait for it as long as they would for one that is in order, whichever rank made the call."""
    faults = [fault(2, "sleep", s=8.0)]
    how: dict[str, Any] = {"rejoin": True, "timeout_s": 1.5 if is_plain else 0.5, "plain": is_plain}
    with Job(tmp_path, 3, faults=faults, steps=50, pace_s=0.02, least=3, **how) as job:
        job.wait([0, 1, 2])
        left, joined = (e for e in job.events(0) if e["event"] == "recovered")
        assert (left["members"], left["code"], left["culprits"]) == ([0, 1], "RTM005", [2])
        assert (joined["members"], joined["joined"], joined["cause"]) == ([0, 1, 2], [2], "joins")


@pytest.mark.slow
def test_without_rejoin_it_asks_for_nothing(tmp_path: Path) -> None:
    """Which would interrupt the others, who may not be made for that."""
    faults = [fault(2, "sleep", s=13.0)]
    with Job(tmp_path, 3, faults=faults, steps=250, pace_s=0.05, timeout_s=0.5) as job:
        job.wait([2])
        assert job.last(2, "ended")["error"] == "RankExcluded"
        job.wait([0, 1])
        assert [e["members"] for e in job.events(0) if e["event"] == "recovered"] == [[0, 1]]


@pytest.mark.slow
def test_a_rank_that_wakes_up_late_joins_at_the_next_call(tmp_path: Path) -> None:
    """Twice, in a loop of the script's own; no sum is wrong, and the group is the same where torch can."""
    faults = [fault(2, "stop"), fault(2, "stop", 40)]
    with Job(tmp_path, 3, faults=faults, steps=90, pace_s=0.02, rejoin=True, timeout_s=0.5, least=3) as job:
        for number in (1, 2):
            until(partial(recovered, job, {0: 2 * number - 1, 1: 2 * number - 1}), 100.0)
            assert agreed(job, [0, 1])["members"] == [0, 1]
            job.wake(2)
            until(partial(recovered, job, {0: 2 * number, 1: 2 * number, 2: number}), 60.0)
            found = agreed(job, [0, 1])
            assert (found["members"], found["joined"], found["cause"]) == ([0, 1, 2], [2], "joins")
            own = job.last(2, "recovered")
            assert {own[k] for k in ("epoch", "step", "is_same")} == {found[k] for k in ("epoch", "step", "is_same")}
            assert found["is_same"] is can_reconfigure()
        job.wait([0, 1, 2])
        assert len({job.last(r, "done")["steps"] for r in range(3)}) == 1


@pytest.mark.slow
def test_a_rank_that_was_started_again_joins_at_the_next_call(tmp_path: Path) -> None:
    with Job(tmp_path, 3, faults=[fault(2, "kill")], pace_s=0.02, steps=40, least=3) as job:
        until(partial(recovered, job, {0: 1, 1: 1}), 100.0)
        job.restart(2)
        job.wait([0, 1, 2])
        found = agreed(job, [0, 1])
        assert (found["members"], found["joined"], found["cause"]) == ([0, 1, 2], [2], "joins")
        assert job.last(2, "recovered")["step"] == found["step"]


@pytest.mark.slow
def test_a_rank_that_stopped_after_a_step_joins_the_loop(tmp_path: Path) -> None:
    """What follows step 30 fails with it, and is not done again; a join leaves out nothing."""
    faults = [fault(2, "stop", 30, after=True)]
    with Job(tmp_path, 3, script="loop_rank.py", faults=faults, pace_s=0.02, steps=60, least=3, timeout_s=0.5) as job:
        until(partial(recovered, job, {0: 1, 1: 1}), 100.0)
        job.wake(2)
        job.wait([0, 1, 2])
        assert agreed(job, [0, 1])["cause"] == "joins"
        followed = {e["step"] for e in job.events(0) if e["event"] == "followed"}
        assert followed == set(range(5, job.last(0, "done")["steps"] + 1, 5)) - {30}


@pytest.mark.slow
def test_two_faults_one_after_the_other(tmp_path: Path) -> None:
    with Job(tmp_path, 4, faults=[fault(1, "kill", 5), fault(3, "raise", 12)], confirm=True) as job:
        job.wait([0, 2, 3])
        assert agreed(job, [0, 2, 3])["culprits"] == [3]
        assert agreed(job, [0, 2, 3])["members"] == [0, 2, 3]


def test_two_subgroups_fail_at_the_same_time(tmp_path: Path) -> None:
    """Rows 0, 1 and 2, 3 of a mesh; a rank of each is late at the same step: one failure, for all."""
    faults = [fault(1, "sleep", 8, s=2.0), fault(2, "sleep", 8, s=2.0)]
    with Job(tmp_path, 4, faults=faults, steps=14, timeout_s=0.8, mesh=True) as job:
        job.wait([0, 1, 2, 3])
        found = agreed(job, [0, 1, 2, 3])
        assert (found["code"], found["members"]) == ("RTM005", [0, 1, 2, 3])
        assert found["culprits"] in ([1], [2])
        assert all(job.last(r, "done")["steps"] == 14 for r in range(4))


def test_too_few_ranks_are_no_job(tmp_path: Path) -> None:
    with Job(tmp_path, 3, faults=[fault(1, "kill")], min_ranks=3) as job:
        job.wait([0, 2])
        assert [job.last(r, "ended")["error"] for r in (0, 2)] == ["RecoveryRefused"] * 2
        assert "missing: rank 1" in job.last(0, "ended")["text"]


def test_without_the_hub_every_rank_gets_a_local_failure_in_time(tmp_path: Path) -> None:
    with Job(tmp_path, 3, steps=5000, pace_s=0.02) as job:
        for rank in range(3):
            until(partial(job.has, rank, "started"), 100.0)
        hub = job.hub()
        assert hub is not None
        os.kill(hub, signal.SIGKILL)
        job.wait([0, 1, 2], 60.0)
        for rank in range(3):
            assert job.last(rank, "failed")["error"] == "HubLost"
            assert job.last(rank, "failed")["blocked_s"] < 10.0
            assert job.last(rank, "ended")["error"] == "HubLost"


def test_a_rank_ends_although_an_operation_of_gloo_does_not(tmp_path: Path) -> None:
    """The destructor of the group would wait for it: 30 minutes by default."""
    with Job(tmp_path, 2, script="unfinished.py") as job:
        until(partial(job.has, 0, "started"), 100.0)
        job.wait([0], 60.0)
        assert job.processes[0].returncode == 1
        assert "made by the test" in job.errors(0)
        assert job.processes[1].poll() is None


def test_a_hub_that_is_stopped_for_longer_than_it_has_to_answer_is_waited_for(tmp_path: Path) -> None:
    """One that stays so: `test_calling.py`."""
    with Job(tmp_path, 3, steps=40, pace_s=0.02, confirm=True, timeout_s=0.5) as job:
        for rank in range(3):
            until(partial(job.has, rank, "started"), 100.0)
        hub = job.hub()
        assert hub is not None
        os.kill(hub, signal.SIGSTOP)
        time.sleep(0.5 + 1.0 + FREEZE_S + MARGIN_S + 0.3)
        os.kill(hub, signal.SIGCONT)
        job.wait([0, 1, 2], 60.0)
        failed = [[e["error"] for e in job.events(rank) if e["event"] == "failed"] for rank in range(3)]
        assert failed == [["CollectiveFailed"]] * 3
        assert agreed(job, [0, 1, 2])["members"] == [0, 1, 2]
        assert [job.processes[rank].returncode for rank in range(3)] == [0, 0, 0]


PLANS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rank.py", {"pace_s": 0.02}),
    ("rank.py", {"pace_s": 0.02, "mesh": True}),
    ("rank.py", {"pace_s": 0.02, "plain": True}),
    ("plain_rank.py", {"victim": -1, "kind": "", "timeout_s": 2.0}),
)
ENDS = [(number, *plan) for number in (signal.SIGKILL, signal.SIGSTOP) for plan in PLANS]
FIRST_ENDS = [ENDS[at] for at in (0, 6)]


@cases("number, script, plan", FIRST_ENDS, parts=2)
def test_the_end_of_the_stores_machine_is_a_local_failure_in_time(
    number: signal.Signals, script: str, plan: dict[str, Any], tmp_path: Path
) -> None:
    stores_machine_ends(number, script, plan, tmp_path)


@pytest.mark.slow
@cases("number, script, plan", [end for end in ENDS if end not in FIRST_ENDS], parts=6)
def test_so_is_it_with_the_other_calls(
    number: signal.Signals, script: str, plan: dict[str, Any], tmp_path: Path
) -> None:
    stores_machine_ends(number, script, plan, tmp_path)


def stores_machine_ends(number: signal.Signals, script: str, plan: dict[str, Any], folder: Path) -> None:
    """With rank 0 its store goes, and the agreement: no rank can know any more what the others have.

    SIGKILL: as where the machine restarts and resets its connections; SIGSTOP: as where it is gone silently.
    At most 3 and 8 s where nothing else runs; a busy machine may need longer.
    """
    num_ranks = 4 if plan.get("mesh") else 3
    with Job(folder, num_ranks, script=script, steps=50_000, **plan) as job:
        for rank in range(num_ranks):
            until(partial(job.has, rank, "started"), 100.0)
        time.sleep(0.5)
        hub = job.hub()
        assert hub is not None
        began_s = time.monotonic()
        try:
            os.kill(job.processes[0].pid, number)
            os.kill(hub, number)
            job.wait(list(range(1, num_ranks)), 60.0)
        finally:
            if number == signal.SIGSTOP:
                os.kill(hub, signal.SIGKILL)
        for rank in range(1, num_ranks):
            ended = job.last(rank, "ended")
            assert ended["error"] == "HubLost"
            assert "no decision of the hub" in ended["text"]
            assert ended["at_s"] - began_s < 30


def test_the_hub_ends_after_the_last_rank(tmp_path: Path) -> None:
    with Job(tmp_path, 2, steps=3) as job:
        job.wait([0, 1])
        until(lambda: job.hub() is None, 30.0)


@pytest.mark.slow
def test_an_exception_is_marked_with_its_rank_once_however_often_the_group_formed_again(tmp_path: Path) -> None:
    """torch puts that before every line, again with each group that it makes."""
    script = (
        "import allready, torch.distributed as dist\n"
        "allready.init_process_group(store=dist.HashStore(), rank=0, world_size=1)\n"
        "for _ in range(3):\n"
        "    with allready.subgroups():\n"
        "        dist.new_group([0])\n"  # so that torch cannot form it again in place
        "    allready.recover(ValueError('made by the test'))\n"
        "raise ValueError('not caught')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1] == "[rank0]: ValueError: not caught"


def test_calls_in_two_groups_of_the_same_ranks_are_each_compared_and_counted_by_themselves(tmp_path: Path) -> None:
    with Job(tmp_path, 3, script="twins_rank.py") as job:
        job.wait([0, 1, 2])
        for rank in range(3):
            if rank < 2:
                assert job.last(rank, "sums")["values"] == job.last(rank, "again")["values"] == [2.0, 4.0]
            size, apart = job.last(rank, "size"), job.last(rank, "apart")
            assert (size["code"], size["group"], size["twin"]) == ("RTM008", [0, 1], 1)
            assert size["voids"] == [[[0, 1], 0, 3], [[0, 1], 1, 2]]  # two calls in the first, one in the second
            # Rank 0 waited in the first group; rank 1, which waited in the second, has not come there.
            assert (apart["code"], apart["culprits"], apart["group"]) == ("RTM005", [1], [0, 1])
            assert apart["twin"] == 0


def test_ranks_that_wait_while_groups_are_made_are_released_with_the_same_verdict(tmp_path: Path) -> None:
    """torch would wait for the others for half an hour."""
    with Job(tmp_path, 3, script="making_rank.py") as job:
        job.wait([0, 1, 2])
        for rank in range(3):
            assert job.last(rank, "made")["total"] == 3.0
            for name in ("inside", "before", "half", "half_of_parts"):
                found = job.last(rank, name)
                assert (found["code"], found["culprits"], found["members"]) == ("RTM002", [1], [0, 1, 2])
            # Rank 1 may raise while others still wait in the store, for its connection (or begin it, and are refused),
            # or, connected, in the barrier that follows.
            kinds = ("ValueError",) if rank == 1 else ("DistNetworkError", "RuntimeError", "CollectiveFailed")
            assert job.last(rank, "half")["error"].startswith(kinds)
            for name in ("late", "after", "outside"):
                late = job.last(rank, name)
                assert (late["code"], late["culprits"], late["members"]) == ("RTM005", [1], [0, 1, 2])
            # All have come to the last barrier, and live: who let the others wait is not known.
            assert (job.last(rank, "telling")["code"], job.last(rank, "telling")["members"]) == (None, [0, 1, 2])


def test_ranks_that_do_not_come_to_the_start_are_named_by_all_that_do(tmp_path: Path) -> None:
    with Job(tmp_path, 2, script="making_rank.py", size=4, start_s=1) as job:
        job.wait([0, 1])
        for rank in range(2):
            found = job.last(rank, "refused")
            assert (found["code"], found["culprits"]) == ("RTM009", [2, 3])
            assert "rank 2,3 did not come to form the group; waiting: 2 ranks" in found["text"]


@pytest.mark.parametrize("makes", [False, True])
def test_a_store_that_is_stopped_holds_nobody_up_and_the_job_goes_on_with_another(makes: bool, tmp_path: Path) -> None:
    """torch waits for it without limit."""
    go = tmp_path / "go"
    with Job(tmp_path, 3, script="store_rank.py", answer_s=0.4, makes=makes, go=str(go)) as job:
        assert until(lambda: all(job.has(r, "formed") for r in (1, 2)), 100)
        os.kill(job.processes[0].pid, signal.SIGSTOP)
        go.touch()
        job.wait([1, 2])
        for rank in (1, 2):
            good = job.last(rank, "good")
            assert (good["total"], good["members"], good["is_same"]) == (2.0, [0, 1], False)
