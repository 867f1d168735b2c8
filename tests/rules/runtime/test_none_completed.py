from allready.model import FailureCause
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, rank


def test_names_no_rank_where_all_came() -> None:
    case = failed(rank(0), rank(1))
    [hit] = check("RTM006", case).hits
    assert hit.culprits.ranks == ()
    assert [c for c in CODES if check(c, case).hits] == ["RTM006"]


def test_tells_the_error_of_torch_if_there_is_one() -> None:
    case = failed(rank(0), rank(1, error="RuntimeError: Cannot use ReduceOp.BOR"), cause=FailureCause.BACKEND)
    [hit] = check("RTM006", case).hits
    assert hit.values["error"] == "RuntimeError: Cannot use ReduceOp.BOR"


def test_a_late_rank_explains_it() -> None:
    assert not check("RTM006", failed(rank(0), rank(1, 6, 6))).hits


def test_an_exception_of_a_script_is_no_transfer() -> None:
    assert not check("RTM006", failed(rank(0), rank(1), cause=FailureCause.RAISED)).hits


def test_says_nothing_of_plain_collectives_whose_calls_it_does_not_know() -> None:
    assert not check("RTM006", failed(rank(0, 0, 0), rank(1, 0, 0), cause=FailureCause.BACKEND)).hits
    after_a_barrier = failed(rank(0, 6, 6), rank(1, 6, 6), cause=FailureCause.BACKEND)
    assert not [c for c in CODES if check(c, after_a_barrier).hits]


def test_is_clear_where_no_call_failed() -> None:
    outcome = check("RTM006", fleet(2))
    assert (outcome.state, outcome.not_checked) == ("clear", ())
