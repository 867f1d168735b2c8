from .moving import SLOW_JOB, ask, late

COMPUTES = {0: 0.3, 1: 0.8, 2: 0.8, 3: 0.8}


def test_names_the_slow_rank_and_the_slow_link() -> None:
    [hit] = ask("SLW009", (late(0, 0.3),), flows=SLOW_JOB, inside=COMPUTES).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((0,), (2,))


def test_victims_of_the_slow_link_do_not_make_it_mixed() -> None:
    assert ask("SLW009", (late(1, 0.3),), flows=SLOW_JOB).state == "clear"


def test_one_of_both_alone_is_not_mixed() -> None:
    assert ask("SLW009", (late(0, 0.3),)).state == "clear"
    assert ask("SLW009", flows=SLOW_JOB).state == "clear"


def test_is_clear_when_nothing_is_slow() -> None:
    assert ask("SLW009").state == "clear"
