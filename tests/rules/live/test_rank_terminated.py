"""LIV012."""

from typing import Any

from msgspec.structs import replace

from allready.judging.engine import RuleOutcome
from allready.model import RankStatus
from tests.cases import cases
from tests.rules.live.made import ENTERED, NOW, ask, ended, waiting


def test_names_the_only_rank_that_was_told_to_end() -> None:
    [hit] = ask("LIV012", ended(2, None, "SIGTERM")).hits
    assert (hit.culprits.ranks, hit.values["doing"]) == ((2,), "SIGTERM")


def test_a_job_that_was_told_to_end_has_no_culprit() -> None:
    assert ask("LIV012", *(ended(r, None, "SIGTERM") for r in range(4))).state == "clear"


def test_whoever_was_ended_after_another_had_failed_is_no_culprit() -> None:
    failed = ended(0, exit_code=1, ended_s=ENTERED - 5)
    assert ask("LIV012", failed, ended(2, None, "SIGTERM")).state == "clear"


def test_an_orderly_end_is_another_finding() -> None:
    assert ask("LIV012", ended(2)).state == "clear"


def test_nothing_is_said_of_a_running_job() -> None:
    assert ask("LIV012", waiting(2)).state == "clear"


def alone(rank: int, **changes: Any) -> RankStatus:
    """A rank that works by itself: it has no groups, and no rank waits for another."""
    known: dict[str, Any] = {"groups": (), "phase": "computing", "num_operations": 0, "cpu_share": 0.9}
    return waiting(rank, **(known | changes))


def calm(*ranks: RankStatus) -> RuleOutcome:
    """What is reported of a job of which no rank waits."""
    return ask("LIV012", *ranks, live={"since_s": None})


def gone(rank: int, signal: str = "SIGTERM", **changes: Any) -> RankStatus:
    return ended(rank, None, signal, **({"groups": (), "num_operations": 0} | changes))


@cases("signal", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_names_the_only_one_that_was_terminated_where_no_rank_waits(signal: str) -> None:
    [hit] = calm(gone(1, signal), *(alone(r) for r in (0, 2, 3))).hits
    assert (hit.culprits.ranks, hit.values["doing"], hit.values["waiting"]) == ((1,), signal, None)


def test_one_of_several_that_end_is_no_culprit() -> None:
    others = [alone(r) for r in (2, 3)]
    assert calm(gone(0, ended_s=NOW - 1.0), alone(1), *others).state == "clear"
    assert calm(gone(0), ended(1, groups=()), *others).state == "clear"


def test_names_all_ranks_of_a_node_that_were_terminated_while_the_others_go_on() -> None:
    [hit] = calm(gone(2), gone(3, ended_s=ENTERED - 0.9), alone(0), alone(1)).hits
    assert (hit.culprits.ranks, hit.values["spared"]) == ((2, 3), "rank 0 (gpu0, pid 100), rank 1 (gpu0, pid 101)")
    assert calm(*(gone(r) for r in range(4))).state == "clear"


def test_names_them_also_where_the_others_have_failed_because_of_it() -> None:
    victims = [ended(r, exit_code=1, ended_s=ENTERED - 0.8, groups=()) for r in (0, 1)]
    [hit] = calm(gone(2), gone(3), *victims).hits
    assert (hit.culprits.ranks, hit.values["spared"]) == ((2, 3), "rank 0 (gpu0, pid 100), rank 1 (gpu0, pid 101)")


def test_who_handles_the_signal_may_have_got_it_as_well() -> None:
    """It works in its handler, or finishes its step, and shows neither as saving nor as ending."""
    handle = [alone(r, outlives=("SIGINT", "SIGTERM")) for r in (0, 2, 3)]
    assert calm(gone(1), *handle).state == "clear"
    [hit] = calm(gone(1), *handle[:2], alone(3, outlives=("SIGINT",))).hits
    assert (hit.culprits.ranks, hit.values["spared"]) == ((1,), "rank 3 (gpu1, pid 103)")
    waits = [waiting(r, outlives=("SIGTERM",)) for r in (0, 2, 3)]
    assert ask("LIV012", ended(1, None, "SIGTERM"), *waits).state == "clear"
    assert ask("LIV012", ended(1, None, "SIGTERM"), *waits[:2]).state == "hit"


def test_who_left_in_its_handler_with_exit_code_0_is_named_once_the_others_wait_and_do_not_handle_it() -> None:
    """Nothing else would end them: the launcher takes that end for a good one."""
    left = ended(1, handling="SIGTERM", outlives=("SIGTERM",))
    waits = [waiting(r, outlives=("SIGTERM",)) for r in (0, 2, 3)]
    [hit] = ask("LIV012", left, *waits).hits
    assert (hit.culprits.ranks, hit.values["doing"], hit.values["spared"]) == ((1,), "SIGTERM", None)
    assert ask("LIV012", replace(left, ended_s=NOW - 4.0), *waits).state == "clear"
    assert ask("LIV012", left, *waits[:2], replace(waits[2], handling="SIGTERM")).state == "clear"
    assert ask("LIV012", replace(left, exit_code=143), *waits).state == "clear"


def test_the_signal_is_said_also_where_a_handler_ended_with_an_exit_code() -> None:
    left = ended(1, handling="SIGTERM", outlives=("SIGTERM",))
    [hit] = ask("LIV012", left, *(waiting(r) for r in (0, 2, 3))).hits
    assert (hit.culprits.ranks, hit.values["doing"]) == ((1,), "SIGTERM")


def test_a_rank_that_only_lost_its_peer_is_one_that_did_not_get_it() -> None:
    victim = ended(0, exit_code=1, ended_s=ENTERED - 0.5)
    [hit] = ask("LIV012", ended(2, None, "SIGTERM"), victim, *(waiting(r, outlives=("SIGTERM",)) for r in (1, 3))).hits
    assert (hit.culprits.ranks, hit.values["spared"]) == ((2,), "rank 0 (gpu0, pid 100)")
