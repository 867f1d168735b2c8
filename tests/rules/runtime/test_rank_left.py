from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.model import MemberState
from allready.model.fill import in_english
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, gone, rank


def test_names_that_rank_and_not_those_that_wait() -> None:
    case = failed(rank(0), rank(1), gone(2, MemberState.LEFT), rank(3))
    [hit] = check("RTM004", case).hits
    assert hit.culprits.ranks == (2,)
    assert in_english(hit.values["waiting"]) == "3 ranks"
    assert hit.values["call"] == "all_reduce #7"
    assert [c for c in CODES if check(c, case).hits] == ["RTM004"]
    assert judge(case, load_area("runtime"))[0][0].code == "RTM004"


def test_a_dead_rank_has_not_left() -> None:
    assert not check("RTM004", failed(rank(0), gone(1, MemberState.DIED))).hits


def test_is_clear_where_no_call_failed() -> None:
    outcome = check("RTM004", fleet(2))
    assert (outcome.state, outcome.not_checked) == ("clear", ())


def test_names_all_that_left() -> None:
    case = failed(rank(0), gone(1, MemberState.LEFT), gone(2, MemberState.LEFT))
    assert check("RTM004", case).hits[0].culprits.ranks == (1, 2)
