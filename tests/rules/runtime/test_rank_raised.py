from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.model import FailureCause, MemberState
from allready.model.fill import in_english
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, gone, rank


def test_names_that_rank_and_not_those_that_wait() -> None:
    case = failed(rank(0), rank(1), rank(2, cause=FailureCause.RAISED, error="ValueError: x"), rank(3))
    [hit] = check("RTM002", case).hits
    assert hit.culprits.ranks == (2,)
    assert in_english(hit.values["waiting"]) == "3 ranks"
    assert hit.values["call"] == "all_reduce #7"
    assert [c for c in CODES if check(c, case).hits] == ["RTM002"]
    assert judge(case, load_area("runtime"))[0][0].code == "RTM002"


def test_its_process_that_ended_of_it_is_not_reported_again() -> None:
    raised = gone(1, MemberState.DIED, cause=FailureCause.RAISED, error="ValueError: x")
    case = failed(rank(0), raised)
    assert [c for c in CODES if check(c, case).hits] == ["RTM002"]
    assert check("RTM002", case).hits[0].values["error"] == "ValueError: x"


def test_an_error_of_the_backend_is_not_its_own() -> None:
    case = failed(rank(0, cause=FailureCause.BACKEND, error="RuntimeError: reset"), rank(1))
    assert not check("RTM002", case).hits


def test_is_clear_where_no_call_failed() -> None:
    outcome = check("RTM002", fleet(2))
    assert (outcome.state, outcome.not_checked) == ("clear", ())


def test_where_no_rank_was_in_a_call_the_sentence_has_no_place_for_it() -> None:
    case = failed(rank(0, completed=7), rank(1, completed=7, cause=FailureCause.RAISED, error="ValueError: x"))
    [finding] = judge(case, load_area("runtime"))[0]
    assert finding.message == "rank 1 raised an exception: ValueError: x"
