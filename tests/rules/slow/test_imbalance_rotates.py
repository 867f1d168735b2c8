from .moving import ask, late, paces


def test_waiting_by_turns_is_told_and_blames_nobody() -> None:
    [hit] = ask("SLW010", (paces({0: 0.12, 1: 0.14, 2: 0.13, 3: 0.12}),)).hits
    assert not hit.culprits
    assert hit.values["share"] == "51%"


def test_one_rank_that_stands_out_does_not_rotate() -> None:
    assert ask("SLW010", (late(1),)).state == "clear"
    assert ask("SLW010", (paces({0: 0.02, 1: 0.3, 2: 0.05, 3: 0.05}, dict.fromkeys(range(4), 9)),)).state == "clear"


def test_a_few_percent_are_the_usual_noise() -> None:
    assert ask("SLW010", (paces(dict.fromkeys(range(4), 0.04)),)).state == "clear"


def test_is_clear_without_paces() -> None:
    assert ask("SLW010", ()).state == "clear"
