from allready.model import Confidence, Death, Event, FaultClass, Origin, Role
from tests.rules.runs import ask, death, event, one_missing

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


def stopped(rank: int) -> Death:
    return death(rank, "signal", signal="SIGTERM", by_launcher=True)


def test_two_that_their_launchers_ended_cannot_be_told_apart() -> None:
    waited = tuple(event("gloo.recv_timeout", r) for r in range(3))
    found = ask("HNG008", events=waited, deaths=(stopped(3), stopped(4)), expected_ranks=5)
    assert found.state == "clear"


def test_victims_that_waited_at_different_places_clear_whom_a_launcher_ended() -> None:
    """One of those who complain is out of step itself."""
    waited = tuple(
        death(r, text="RuntimeError: Timed out waiting", is_collective_error=True, site=site)
        for r, site in ((1, "train.py:53"), (2, "train.py:49"), (3, "train.py:49"))
    )
    assert ask("HNG008", deaths=(*waited, stopped(0))).state == "clear"
    same = tuple(
        death(r, text="RuntimeError: Timed out waiting", is_collective_error=True, site="a") for r in (1, 2, 3)
    )
    assert ask("HNG008", deaths=(*same, stopped(0))).state == "hit"


def test_a_progress_bar_in_the_output_of_its_node_says_that_it_worked() -> None:
    bar = Event(signature="torch.single_rank_work", origin=Origin(source="out", node="node1"), text="tokenizer 12%")
    [hit] = ask("HNG008", events=(*WAITED, bar)).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((2,), FaultClass.CPU_BUSY)
    other = Event(signature="torch.single_rank_work", origin=Origin(source="out", node="node0"), text="tokenizer 12%")
    [hit] = ask("HNG008", events=(*WAITED, other)).hits
    assert hit.fault_class is FaultClass.CPU_STUCK
