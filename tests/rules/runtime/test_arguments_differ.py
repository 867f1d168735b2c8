from typing import Any

from allready.model import CallArguments, Confidence, FailureCause, Fleet, MemberState, Misfit
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.runtime.made_up import CODES, failed, gone, rank

USUAL: dict[str, Any] = {"operation": "all_reduce", "dtype": "float32", "num_elements": 10, "redop": "sum"}


def compared(*calls: dict[str, Any], **more: Any) -> Fleet:
    """Each rank's call, as it differs from the usual one."""
    ranks = [rank(r, called=CallArguments(**{**USUAL, **call})) for r, call in enumerate(calls)]
    return failed(*ranks, cause=FailureCause.ARGUMENTS, number=7, **more)


@cases(
    "odd, text",
    [
        ({"num_elements": 20}, "all_reduce [20] float32 sum"),
        ({"dtype": "float64"}, "all_reduce [10] float64 sum"),
        ({"redop": "max"}, "all_reduce [10] float32 max"),
        ({"chunk_bytes": 8}, "all_reduce [10] float32 sum chunk_bytes=8"),
        ({"confirm": True}, "all_reduce [10] float32 sum confirm"),
    ],
)
def test_names_the_rank_that_gave_something_else_and_what(odd: dict[str, Any], text: str) -> None:
    case = compared({}, odd, {})
    assert [c for c in CODES if check(c, case).hits] == ["RTM008"]
    [hit] = check("RTM008", case).hits
    assert (hit.culprits.ranks, hit.confidence) == ((1,), Confidence.CERTAIN)
    assert (hit.values["odd"], hit.values["usual"]) == (text, "all_reduce [10] float32 sum")


def test_accuses_neither_of_two_and_no_rank_without_a_majority() -> None:
    for case in (compared({}, {"num_elements": 20}), compared({}, {}, {"num_elements": 20}, {"num_elements": 20})):
        [hit] = check("RTM008", case).hits
        assert hit.culprits.ranks == ()
        assert hit.values["of_rest"] == "all_reduce [20] float32 sum"


def test_of_a_subgroup_its_own_ranks_are_the_members() -> None:
    ranks = [rank(r, called=CallArguments(**{**USUAL, "num_elements": 10 + (r == 2)})) for r in (0, 2, 4)]
    others = [rank(r) for r in (1, 3, 5)]
    [hit] = check("RTM008", failed(*ranks, *others, cause=FailureCause.ARGUMENTS, number=7, group=(0, 2, 4))).hits
    assert hit.culprits.ranks == (2,)


@cases(
    "pairs, culprits, common",
    [
        ([(1, 0)], (), None),
        ([(1, 0), (2, 1)], (1,), "rank 1"),
        ([(1, 0), (1, 2)], (1,), "rank 1"),
        ([(0, 1), (2, 1)], (), "rank 1"),  # what it expects may be right, and what the others send wrong
        ([(0, 1), (1, 1)], (1,), "rank 1"),  # its own part does not fit itself
        ([(0, 1), (1, 2), (2, 0)], (), None),
    ],
)
def test_of_splits_it_shows_a_pair_and_accuses_who_sends_and_has_a_part_in_all_that_does_not_fit(
    pairs: list[tuple[int, int]], culprits: tuple[int, ...], common: str
) -> None:
    call = {"operation": "all_to_all", "num_elements": None, "redop": ""}
    misfits = tuple(Misfit(sender=s, receiver=r, num_sent=3, num_expected=4) for s, r in pairs)
    [hit] = check("RTM008", compared(call, call, call, misfits=misfits)).hits
    assert (hit.culprits.ranks, hit.confidence) == (culprits, Confidence.LIKELY)
    first = tuple(map(str, pairs[0]))
    assert (hit.values["sender"], hit.values["receiver"], hit.values["common"]) == (*first, common)


def test_a_root_is_called_one() -> None:
    call = {"operation": "broadcast", "redop": ""}
    [hit] = check("RTM008", compared(call | {"root": 0}, call | {"root": 2}, call | {"root": 0})).hits
    assert (hit.values["odd"], hit.culprits.ranks) == ("broadcast [10] float32 root 2", (1,))


def test_a_death_explains_it() -> None:
    ranks = [rank(r, called=CallArguments(**{**USUAL, "num_elements": 10 + r})) for r in range(2)]
    case = failed(*ranks, gone(2, MemberState.DIED), cause=FailureCause.ARGUMENTS, number=7)
    assert [c for c in CODES if check(c, case).hits] == ["RTM001"]


def test_is_clear_where_no_call_failed() -> None:
    outcome = check("RTM008", fleet(2))
    assert (outcome.state, outcome.not_checked) == ("clear", ())
