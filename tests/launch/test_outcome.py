"""How an attempt ended, whether it is worth another, and with which code the job ends."""

from typing import Any

from msgspec.structs import replace

from allready.judging.end_causes import end_of_attempt
from allready.launch.outcome import USER_ERRORS, Outcome
from allready.launch.outcome import outcome_of as what_follows
from allready.model import Confidence, Culprits, FaultClass, Loss, LossReason, ProcessEnd, Verdict
from allready.model import EndCause as End
from allready.model.fill import in_english
from allready.model.process import end_of
from tests.cases import cases


def outcome_of(
    ranks: list[ProcessEnd], *, stop_signal: str = "", retry_user_errors: bool = False, **said: Any
) -> Outcome:
    attempt = end_of_attempt(ranks, **said)
    return what_follows(attempt, stop_signal=stop_signal, retry_user_errors=retry_user_errors)


def rank(number: int, end: End, *, at: float = 0.0, code: int | None = 1, signal: str | None = None) -> ProcessEnd:
    return replace(end_of(None if signal else code, signal, rank=number, time_s=at), cause=end, text="t")


def test_all_well() -> None:
    found = outcome_of([rank(0, End.SUCCESS, code=0), rank(1, End.SUCCESS, code=0)])
    assert (found.end, found.exit_code, found.worth_retry, found.first) == (End.SUCCESS, 0, False, None)


def test_the_first_by_the_clock_gives_the_exit_code() -> None:
    found = outcome_of([rank(0, End.CRASHED, at=2.0, signal="SIGSEGV"), rank(1, End.KILLED, at=1.0, signal="SIGKILL")])
    assert (found.exit_code, found.end) == (137, End.KILLED)
    assert found.worth_retry


def test_clocks_that_differ_are_put_right() -> None:
    ranks = [rank(0, End.EXIT_CODE, at=100.0, code=3), rank(1, End.EXIT_CODE, at=40.0, code=4)]
    assert outcome_of(ranks).exit_code == 4
    assert outcome_of(ranks, clock_offsets_s={1: -61.0}).exit_code == 3


def test_an_exception_explains_connections_that_broke_a_little_earlier() -> None:
    found = outcome_of([rank(0, End.NETWORK, at=1.0), rank(1, End.USER_EXCEPTION, at=1.5), rank(2, End.STOPPED)])
    assert found.cause is not None
    assert found.first is not None
    assert (found.first.rank, found.cause.rank, found.end, found.worth_retry) == (0, 1, End.USER_EXCEPTION, False)


def test_a_rank_that_only_gives_a_code_explains_nobody() -> None:
    found = outcome_of([rank(0, End.NETWORK, at=1.0), rank(1, End.EXIT_CODE, at=1.5, code=9)])
    assert (found.end, found.worth_retry) == (End.NETWORK, True)


def test_a_lost_node_explains_connections_that_broke() -> None:
    found = outcome_of([rank(0, End.NETWORK)], lost_nodes={1: Loss(reason=LossReason.LEFT, text="no word for 10 s")})
    assert (found.end, found.worth_retry, found.lost_nodes) == (End.NODE_LOST, True, (1,))
    assert "node 1 was lost: no word for 10 s" in in_english(found.reason.phrase)
    assert (
        outcome_of([rank(0, End.USER_EXCEPTION)], lost_nodes={1: Loss(reason=LossReason.LEFT, text="x")}).end
        is End.USER_EXCEPTION
    )


def test_user_errors_are_retried_only_when_asked() -> None:
    for end in USER_ERRORS:
        assert not outcome_of([rank(0, end)]).worth_retry
        assert outcome_of([rank(0, end)], retry_user_errors=True).worth_retry
    assert not outcome_of([rank(0, End.USAGE)], retry_user_errors=True).worth_retry


def test_the_users_stop_is_the_end_whatever_ranks_say() -> None:
    ranks = [rank(0, End.KILLED, signal="SIGTERM"), rank(1, End.STOPPED, signal="SIGKILL")]
    found = outcome_of(ranks, stopped_by="user", stop_signal="SIGINT", retry_user_errors=True)
    assert (found.end, found.exit_code, found.worth_retry) == (End.STOPPED, 130, False)


def test_a_hang_that_was_ended_as_asked_is_tried_again_and_is_no_success() -> None:
    found = outcome_of([rank(0, End.STOPPED), rank(1, End.SUCCESS, code=0)], stopped_by="hang", verdict=verdict())
    assert (found.end, found.worth_retry, found.exit_code) == (End.HUNG, True, 1)
    assert "rank 1 is late" in in_english(found.reason.phrase)


def verdict(fault_class: FaultClass = FaultClass.DESYNC_FLOW) -> Verdict:
    return Verdict(
        code="COL001",
        fault_class=fault_class,
        confidence=Confidence.CERTAIN,
        culprits=Culprits(),
        sentence="rank 1 is late",
        remedy="",
        fault_time=None,
        detected_time="",
        detect_s=None,
    )


def test_the_judge_knows_better_why_connections_broke() -> None:
    assert outcome_of([rank(0, End.NETWORK)], verdict=verdict()).end is End.USER_EXCEPTION
    unsure = replace(verdict(), confidence=Confidence.POSSIBLE)
    assert outcome_of([rank(0, End.NETWORK)], verdict=unsure).end is End.NETWORK
    assert outcome_of([rank(0, End.KILLED, signal="SIGKILL")], verdict=verdict()).end is End.KILLED


def test_whom_the_report_accuses_is_the_cause_where_it_ended_by_itself() -> None:
    accused = replace(verdict(FaultClass.DEAD), culprits=Culprits(ranks=(1,)))
    ranks = [rank(0, End.CRASHED, at=1.0, signal="SIGSEGV"), rank(1, End.EXIT_CODE, at=1.5, code=9)]

    def cause(judged: Verdict, ends: list[ProcessEnd] = ranks) -> int | None:
        found = outcome_of(ends, verdict=judged).cause
        return found.rank if found is not None else None

    assert cause(accused) == 1
    assert cause(replace(accused, confidence=Confidence.POSSIBLE)) == 0
    assert cause(replace(accused, culprits=Culprits(ranks=(7,)))) == 0
    assert cause(accused, [ranks[0], rank(1, End.STOPPED)]) == 0


@cases(
    ("problem_kind", "expected"),
    [("program", End.USAGE), ("port", End.PORT_IN_USE), ("rendezvous", End.RENDEZVOUS), ("torch", End.UNKNOWN)],
)
def test_ranks_that_were_never_started(problem_kind: str, expected: End) -> None:
    found = outcome_of([], problem="x", problem_kind=problem_kind)
    assert (found.end, found.exit_code, in_english(found.reason.phrase)) == (expected, 1, "x")


def test_exit_codes_are_a_shells() -> None:
    assert rank(0, End.EXIT_CODE, code=7).shell_code == 7
    assert rank(0, End.KILLED, signal="SIGKILL").shell_code == 137
    assert rank(0, End.CRASHED, signal="signal 37").shell_code == 165
    assert ProcessEnd(rank=0).shell_code == 1


def test_ranks_that_all_ended_with_0_succeeded_whatever_was_found() -> None:
    """Their results may be wrong; to start them again changes nothing."""
    found = outcome_of(
        [rank(0, End.SUCCESS, code=0), rank(1, End.SUCCESS, code=0)], verdict=verdict(FaultClass.DESYNC_ARGS)
    )
    assert (found.end, found.exit_code) == (End.SUCCESS, 0)
