from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.model import CallPosition, FailureCause, MemberState
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, gone, rank


def test_names_that_rank_and_not_those_that_wait() -> None:
    case = failed(rank(0), rank(1), rank(2, 6, 6), rank(3))
    [hit] = check("RTM005", case).hits
    assert hit.culprits.ranks == (2,)
    assert hit.values["waiting"] == "0, 1, 3"
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
