from allready.judging.engine import judge
from allready.model import Confidence, Role
from tests.rules.runs import ask, event, run_fleet

ECHO = "torch.monitored_barrier_echo"


def test_who_passed_the_barrier_accuses_nobody_and_sends_to_rank_0() -> None:
    [hit] = ask("RES011", events=(event(ECHO, 3, role=Role.CASCADE),)).hits
    assert (hit.values["who"], hit.confidence) == ("rank 3 (node 1)", Confidence.POSSIBLE)
    assert not hit.culprits


def test_who_got_to_the_end_lost_nothing() -> None:
    assert ask("RES011", events=(event(ECHO, 3, role=Role.CASCADE),), ended_well=frozenset({3})).hits == ()


def test_without_such_a_line_nothing_is_said() -> None:
    assert ask("RES011", events=(event("torch.watchdog_timeout", 3),)).hits == ()


def test_the_line_of_rank_0_says_more() -> None:
    missing = event("torch.monitored_barrier", 0, role=Role.ROOT, values={"ranks": "2", "timeout_ms": "1800000"})
    found, _ = judge(run_fleet(events=(missing, event(ECHO, 3, role=Role.CASCADE))))
    assert next(f.code for f in found) == "TCH017"
    assert "RES011" not in {f.code for f in found}
