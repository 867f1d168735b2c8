"""LIV012."""

from tests.rules.live.made import ENTERED, ask, ended, waiting


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
