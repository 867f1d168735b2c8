from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.model import FailureCause, MemberState
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, gone, rank


def test_names_that_rank_and_not_those_that_wait() -> None:
    case = failed(rank(0), rank(1), gone(2, MemberState.DIED), rank(3))
    [hit] = check("RTM001", case).hits
    assert hit.culprits.ranks == (2,)
    assert hit.values["waiting"] == "0, 1, 3"
    assert hit.values["call"] == "all_reduce #7"
    assert [c for c in CODES if check(c, case).hits] == ["RTM001"]
    assert judge(case, load_area("runtime"))[0][0].code == "RTM001"


def test_a_victims_error_accuses_neither_it_nor_the_late_one_beside_it() -> None:
    victim = rank(0, cause=FailureCause.BACKEND, error="RuntimeError: Connection closed by peer")
    case = failed(victim, gone(1, MemberState.DIED), rank(2, 6, 6), cause=FailureCause.BACKEND)
    assert [c for c in CODES if check(c, case).hits] == ["RTM001"]


def test_explains_a_silent_rank() -> None:
    case = failed(rank(0), gone(1, MemberState.SILENT), gone(2, MemberState.DIED))
    assert judge(case, load_area("runtime"))[0][0].code == "RTM001"


def test_is_clear_where_no_call_failed() -> None:
    outcome = check("RTM001", fleet(2))
    assert (outcome.state, outcome.not_checked) == ("clear", ())
