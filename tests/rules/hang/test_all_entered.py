from allready.judging.engine import judge
from allready.model import Confidence, Severity
from tests.rules.desync.test_other_call import mismatch
from tests.rules.live import made as live
from tests.rules.runs import ask, at, event, group, one_missing, operation

LEVEL = group({r: at(65, 64) for r in range(4)})


def test_says_that_nobody_is_missing_and_accuses_nobody() -> None:
    [hit] = ask("HNG005", progress=(LEVEL,)).hits
    assert not hit.culprits
    assert hit.confidence is Confidence.POSSIBLE


def test_a_missing_rank_is_another_finding() -> None:
    assert ask("HNG005", progress=(one_missing(1),)).state == "clear"


def test_arguments_that_differ_are_another_finding() -> None:
    assert ask("HNG005", progress=(LEVEL,), mismatches=(mismatch((1,), operation(64, "broadcast")),)).state == "clear"


def test_nobody_waits_in_a_run_that_completed_everything() -> None:
    assert ask("HNG005", progress=(group({r: at(65) for r in range(4)}),)).state == "clear"


def test_a_part_of_the_ranks_proves_nothing() -> None:
    assert ask("HNG005", progress=(group({0: at(65, 64), 1: at(65, 64)}, size=0, members=(0, 1)),)).state == "clear"


def test_a_glance_at_a_moving_job_is_no_fault() -> None:
    """No rank has given up waiting: ranks of a healthy job stand in one operation at any moment."""
    [glance] = ask("HNG005", progress=(LEVEL,)).hits
    [stuck] = ask("HNG005", progress=(LEVEL,), events=(event("torch.watchdog_timeout", 0),)).hits
    assert (glance.severity, stuck.severity) == (Severity.WARNING, None)


def test_an_operation_that_somebody_left_did_work() -> None:
    left = group({r: at(65, 64) if r else at(65) for r in range(4)})
    assert ask("HNG005", progress=(left,), events=(event("torch.watchdog_timeout", 0),)).state == "clear"


def test_of_a_running_job_it_is_reported_once_the_wait_has_lasted_too_long() -> None:
    for hang_after_s, state in ((60.0, "clear"), (8.0, "hit")):  # it has lasted 10 s
        assert live.ask("HNG005", live={"hang_after_s": hang_after_s}).state == state
    [hit] = live.ask("HNG005", live={"hang_after_s": 8.0}).hits
    assert (bool(hit.culprits), hit.severity, hit.confidence) == (False, None, Confidence.POSSIBLE)
    late = (live.behind(2),)
    assert live.ask("HNG005", *late, live={"hang_after_s": 8.0}).state == "clear", "a rank is missing"


def test_connections_without_data_explain_it() -> None:
    found = judge(live.job(sockets=(live.socket(),), live={"hang_after_s": 8.0}))[0]
    assert [f.code for f in found][:2] == ["LIV010", "HNG005"]
