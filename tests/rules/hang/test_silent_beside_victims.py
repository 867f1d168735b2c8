from allready.model import Confidence, Death, FaultClass, Role
from tests.rules.ruins import ask, death, event, one_missing

WAITED = tuple(
    event("gloo.recv_timeout", r, "Timed out waiting 12000ms for recv operation to complete") for r in (0, 1, 3)
)


def lost(rank: int) -> Death:
    return death(
        rank, text="RuntimeError: Connection closed by peer [10.0.0.1]:5", is_collective_error=True, exit_code=1
    )


def test_names_the_one_that_did_not_wait() -> None:
    [hit] = ask("HNG008", events=WAITED).hits
    assert (hit.culprits.ranks, hit.fault_class, hit.confidence) == ((2,), FaultClass.CPU_STUCK, Confidence.LIKELY)


def test_a_rank_that_left_early_ended_with_0_when_its_launcher_reports_only_others() -> None:
    [hit] = ask("HNG008", deaths=(lost(0), lost(2), lost(3))).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((1,), FaultClass.DESYNC_FLOW)


def test_without_a_word_of_its_launcher_it_may_have_died() -> None:
    [hit] = ask("HNG008", deaths=(lost(0), lost(2), lost(3)), node_of_rank={}).hits
    assert hit.fault_class is FaultClass.DEAD


def test_whom_a_launcher_ended_is_suspected_only_if_nobody_else_is_silent() -> None:
    ended = death(3, "signal", signal="SIGTERM", by_launcher=True)
    [hit] = ask("HNG008", events=WAITED[:2], deaths=(ended,), expected_ranks=4).hits
    assert hit.culprits.ranks == (2,)


def test_blames_nobody_when_as_many_are_silent_as_speak() -> None:
    assert ask("HNG008", events=WAITED[:2], expected_ranks=4).state == "clear"


def test_better_evidence_is_told_instead() -> None:
    assert ask("HNG008", events=WAITED, progress=(one_missing(2),)).state == "clear"
    assert ask("HNG008", events=WAITED, deaths=(death(2),)).state == "clear"


def test_nobody_waits() -> None:
    assert ask("HNG008").state == "clear"


def test_a_line_that_states_a_cause_is_told_instead() -> None:
    cause = event("gloo.size_mismatch", None, "Received data size doesn't match", role=Role.ROOT)
    assert ask("HNG008", events=(*WAITED, cause)).state == "clear"
