from typing import Any

from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.judging.places import num_ranks
from allready.model import MAKINGS, Begun, CallPosition, Confidence, FailureCause, Fleet, MemberState
from allready.model.fill import in_english
from allready.text.catalog import say
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, gone, rank


def test_names_that_rank_and_not_those_that_wait() -> None:
    case = failed(rank(0), rank(1), rank(2, 6, 6), rank(3))
    [hit] = check("RTM005", case).hits
    assert hit.culprits.ranks == (2,)
    assert in_english(hit.values["waiting"]) == "3 ranks"
    assert hit.values["call"] == "all_reduce #7"
    assert [c for c in CODES if check(c, case).hits] == ["RTM005"]
    assert judge(case, load_area("runtime"))[0][0].code == "RTM005"


def test_who_completed_the_call_before_the_others_is_not_late() -> None:
    assert not check("RTM005", failed(rank(0), rank(1, 7, 7))).hits
    assert check("RTM006", failed(rank(0), rank(1, 7, 7))).hits


def test_accuses_no_late_rank_where_another_one_died() -> None:
    assert not check("RTM005", failed(rank(0), rank(1, 6, 6), gone(2, MemberState.DIED))).hits


def test_is_clear_where_no_call_failed() -> None:
    outcome = check("RTM005", fleet(2))
    assert (outcome.state, outcome.not_checked) == ("clear", ())


def test_who_has_not_come_yet_when_torch_refuses_the_call_of_the_others_is_not_late() -> None:
    at_once = CallPosition(entered=7, completed=6, operation="all_to_all", waited_s=0.004)
    cause = FailureCause.BACKEND
    assert not check("RTM005", failed(rank(0, call=at_once), rank(1, 6, 6), cause=cause)).hits
    assert check("RTM005", failed(rank(0), rank(1, 6, 6), cause=cause)).hits


def plainly(*counts: int, inside: tuple[int, ...] = (0, 1, 3), still_s: float = 5.0, **more: Any) -> Fleet:
    """Ranks that have completed the same safe calls, and begun so many operations of torch's."""
    ranks = [rank(r, 6, 6, still_s=still_s, is_inside=r in inside) for r in range(len(counts))]
    begun = Begun(group="0", counts=dict(enumerate(counts)))
    return failed(*ranks, begun=(begun,), **{"cause": FailureCause.BACKEND, **more})


def test_names_a_rank_that_is_missed_in_a_plain_collective_and_outside_of_all() -> None:
    case = plainly(21, 22, 20, 22)
    [hit] = check("RTM005", case).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.LIKELY)
    assert in_english(hit.values["waiting"]) == "3 ranks"
    [finding] = judge(case, load_area("runtime"))[0]
    assert "did not enter plain collective #21 of group 0 in time" in finding.message
    assert "没有按时进入以下调用：组 0 的第 21 个普通集合通信；" in say(finding, "message", "zh")
    assert [c for c in CODES if check(c, case).hits] == ["RTM005"]


@cases(
    "case",
    [
        plainly(22, 22, 20, 22, inside=(0, 1, 2, 3)),  # it waits, too: sends and receives count
        plainly(22, 22, 20, 22, still_s=0.1),  # the call itself failed at once
        plainly(22, 22, 20, 22, cause=FailureCause.RAISED),
        plainly(22, 22, 20, 22, cause=FailureCause.JOINS),
    ],
)
def test_a_count_that_is_less_is_no_lateness_by_itself(case: Fleet) -> None:
    assert not [c for c in CODES if check(c, case).hits]


def test_who_comes_next_in_another_group_is_not_late() -> None:
    """Rank 0 has only just begun an operation without it; of rank 2 it is known for seconds."""
    ranks = [rank(0, 6, 6, is_inside=True), rank(1, 6, 6), rank(2, 6, 6), rank(3, 6, 6, still_s=5.0, is_inside=True)]
    begun = (Begun(group="1", counts={0: 9, 1: 8}), Begun(group="2", counts={2: 4, 3: 5}))
    [hit] = check("RTM005", failed(*ranks, begun=begun, cause=FailureCause.BACKEND)).hits
    assert (hit.culprits.ranks, in_english(hit.values["waiting"])) == ((2,), "rank 3")


def test_who_waits_in_a_call_for_ranks_that_send_and_compute_has_left_nothing_out() -> None:
    counts = Begun(group="0", counts={0: 22, 1: 22, 2: 21, 3: 22})
    case = failed(*(rank(r, 6, 6, still_s=5.0) for r in (0, 1, 3)), rank(2, operation="barrier"), begun=(counts,))
    [hit] = check("RTM005", case).hits
    assert hit.culprits.ranks == (0, 1, 3)


def test_a_rank_whose_operation_in_flight_failed_had_waited() -> None:
    waiting = [rank(r, 6, 6, still_s=5.0, cause=FailureCause.BACKEND) for r in (0, 1)]
    counts = Begun(group="0", counts={0: 22, 1: 22, 2: 21})
    [hit] = check("RTM005", failed(*waiting, rank(2, 6, 6), begun=(counts,), cause=FailureCause.BACKEND)).hits
    assert hit.culprits.ranks == (2,)


def test_who_waits_in_a_safe_call_has_left_out_the_plain_one_in_which_most_wait() -> None:
    counts = Begun(group="0", counts={0: 22, 1: 22, 2: 21, 3: 22})
    inside = [rank(r, 6, 6, still_s=5.0, is_inside=True) for r in (0, 1, 3)]
    case = failed(*inside, rank(2, operation="barrier"), begun=(counts,))
    [hit] = check("RTM005", case).hits
    assert (hit.culprits.ranks, in_english(hit.values["waiting"])) == ((2,), "3 ranks")
    first = failed(*inside, rank(2, operation="barrier", cause=FailureCause.DEADLINE), begun=(counts,))
    assert check("RTM005", first).hits == (hit,)  # whichever deadline passes first
    one = failed(inside[0], rank(2, operation="barrier"), begun=(Begun(group="0", counts={0: 22, 2: 21}),))
    [hit] = check("RTM005", one).hits
    assert hit.culprits.ranks == (0,)  # of two neither is out of step with most: who is late for the safe call


def test_a_deadline_of_less_than_a_second_names_who_is_late_for_a_plain_operation() -> None:
    """Who is inside of the operation whose deadline has passed for one has waited, too; in another one not."""
    timed_out = rank(0, 6, 6, still_s=0.2, cause=FailureCause.DEADLINE)
    inside = [rank(r, 6, 6, still_s=0.2, is_inside=True) for r in (1, 3)]
    counts = Begun(group="0", counts={0: 22, 1: 22, 2: 21, 3: 22})
    case = failed(timed_out, *inside, rank(2, 6, 6, still_s=0.4), begun=(counts,), cause=FailureCause.DEADLINE)
    [hit] = check("RTM005", case).hits
    assert (hit.culprits.ranks, hit.values["waiting"]) == ((2,), num_ranks((0, 1, 3)))
    ahead = Begun(group="0", counts={0: 22, 1: 23, 2: 22, 3: 23})
    at_once = failed(timed_out, *inside, rank(2, 6, 6, still_s=0.4), begun=(ahead,), cause=FailureCause.DEADLINE)
    assert not check("RTM005", at_once).hits


def making(late: Any, **of_waiting: Any) -> Fleet:
    """Ranks that wait in torch for `late` to make the second group with them."""
    waiting = [rank(r, 1, 1, still_s=5.0, is_inside=True, **{"is_making": True, **of_waiting}) for r in (0, 2)]
    counts = Begun(group=MAKINGS, counts={0: 2, 1: 1, 2: 2})
    return failed(waiting[0], late, waiting[1], begun=(counts,))


def test_names_a_rank_that_does_not_come_to_make_a_group() -> None:
    case = making(rank(1, 1, 1, still_s=5.0))
    [hit] = check("RTM005", case).hits
    assert (hit.culprits.ranks, hit.confidence) == ((1,), Confidence.LIKELY)
    [finding] = judge(case, load_area("runtime"))[0]
    assert "did not enter the making of group #2 in time; waiting: 2 ranks" in finding.message
    assert "没有按时进入以下调用：第 2 个组的创建；" in say(finding, "message", "zh")
    assert [e.text.rpartition("; ")[2] for e in finding.evidence] == [f"began to make {n} groups" for n in (2, 1, 2)]


@cases(
    "case",
    [
        making(rank(1, 1, 1, still_s=5.0, is_inside=True)),  # it waits for others in something else
        making(rank(1, 1, 1, still_s=5.0), is_making=False),  # who wait in another operation do not wait for it there
    ],
)
def test_who_has_made_fewer_groups_is_not_late_where_nobody_waits_for_it_to_make_one(case: Fleet) -> None:
    assert not check("RTM005", case).hits
