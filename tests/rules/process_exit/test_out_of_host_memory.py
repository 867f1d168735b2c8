from tests.rules.runs import ask, death


def test_names_the_rank_that_the_kernel_killed() -> None:
    [hit] = ask("DTH003", deaths=(death(1, "oom", text="Out of memory: Killed process 101 (python)"),)).hits
    assert hit.culprits.ranks == (1,)
    assert "Killed process" in str(hit.values["text"])


def test_an_ordinary_kill_is_another_finding() -> None:
    assert ask("DTH003", deaths=(death(1, "signal", signal="SIGKILL"),)).state == "clear"


def test_who_was_killed_long_after_the_first_is_not_the_cause() -> None:
    found = ask("DTH003", deaths=(death(0, time_s=1000.0), death(1, "oom", time_s=1100.0)))
    assert found.state == "clear"


def test_nobody_died() -> None:
    assert ask("DTH003").state == "clear"
