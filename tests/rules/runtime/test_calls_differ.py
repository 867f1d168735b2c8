from allready.model import CallArguments, FailureCause, MemberState
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, gone, rank


def test_names_the_rank_that_called_something_else() -> None:
    case = failed(rank(0), rank(1), rank(2, operation="barrier"), rank(3))
    [hit] = check("RTM007", case).hits
    assert hit.culprits.ranks == (2,)
    assert (hit.values["number"], hit.values["odd"], hit.values["usual"]) == ("7", "barrier", "all_reduce")
    assert [c for c in CODES if check(c, case).hits] == ["RTM007"]


def test_accuses_nobody_where_the_votes_are_even() -> None:
    case = failed(rank(0), rank(1, operation="barrier"))
    assert [c for c in CODES if check(c, case).hits] == ["RTM007"]
    [hit] = check("RTM007", case).hits
    assert hit.culprits.ranks == ()
    assert (hit.values["odd"], hit.values["of_rest"]) == ("all_reduce", "barrier")


def test_names_it_from_what_was_called_also_where_a_rank_has_gone_on_since() -> None:
    usual = CallArguments(operation="broadcast", root=0)
    case = failed(
        rank(0, 9, 8, called=usual),
        rank(1, called=usual),
        rank(2, operation="barrier", called=CallArguments(operation="barrier")),
        cause=FailureCause.ARGUMENTS,
        number=7,
    )
    assert [c for c in CODES if check(c, case).hits] == ["RTM007"]
    [hit] = check("RTM007", case).hits
    assert (hit.culprits.ranks, hit.values["odd"]) == ((2,), "barrier")


def test_a_rank_that_is_behind_is_late_and_not_different() -> None:
    case = failed(rank(0), rank(1), rank(2, 6, 5, operation="barrier"), rank(3))
    assert [c for c in CODES if check(c, case).hits] == ["RTM005"]


def test_a_death_explains_it() -> None:
    case = failed(rank(0), rank(1), rank(2, operation="barrier"), gone(3, MemberState.DIED))
    assert not check("RTM007", case).hits


def test_is_clear_where_no_call_failed() -> None:
    outcome = check("RTM007", fleet(2))
    assert (outcome.state, outcome.not_checked) == ("clear", ())
