from .moving import SLOW_JOB, ask, late


def test_everybody_slower_together_is_told_and_blames_nobody() -> None:
    [hit] = ask("SLW011", speed=(20.0, 8.0)).hits
    assert not hit.culprits


def test_a_slow_rank_or_link_is_the_better_answer() -> None:
    assert ask("SLW011", (late(1),), speed=(20.0, 8.0)).state == "clear"
    assert ask("SLW011", flows=SLOW_JOB, speed=(20.0, 8.0)).state == "clear"


def test_the_usual_ups_and_downs_are_not_told() -> None:
    assert ask("SLW011", speed=(20.0, 16.0)).state == "clear"


def test_a_job_that_becomes_faster_is_healthy() -> None:
    assert ask("SLW011", speed=(8.0, 20.0)).state == "clear"
