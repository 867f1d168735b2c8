from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.model import MemberState
from allready.model.fill import in_english
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, gone, rank


def test_names_that_rank_and_not_those_that_wait() -> None:
    case = failed(rank(0), rank(1), gone(2, MemberState.SILENT), rank(3))
    [hit] = check("RTM003", case).hits
    assert hit.culprits.ranks == (2,)
    assert in_english(hit.values["waiting"]) == "3 ranks"
    assert hit.values["call"] == "all_reduce #7"
    assert [c for c in CODES if check(c, case).hits] == ["RTM003"]
    assert judge(case, load_area("runtime"))[0][0].code == "RTM003"


def test_a_rank_that_answers_is_not_silent_however_late() -> None:
    assert not check("RTM003", failed(rank(0), rank(1, 0, 0))).hits


def test_is_clear_where_no_call_failed() -> None:
    outcome = check("RTM003", fleet(2))
    assert (outcome.state, outcome.not_checked) == ("clear", ())


def test_a_dead_rank_beside_it_explains_more() -> None:
    case = failed(rank(0), gone(1, MemberState.SILENT), gone(2, MemberState.DIED))
    assert check("RTM003", case).hits[0].culprits.ranks == (1,)
    assert judge(case, load_area("runtime"))[0][0].culprits.ranks == (2,)
