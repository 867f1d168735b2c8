from .moving import ask, late

LOADING = {2: {"phase": "loading", "site": "train.py:41 batches"}}


def test_names_the_rank_that_waits_for_its_data_and_where() -> None:
    [hit] = ask("SLW004", (late(2),), ranks=LOADING).hits
    assert (hit.culprits.ranks, str(hit.values["site"])) == ((2,), "train.py:41 batches")


def test_when_all_load_as_long_it_is_not_the_loader() -> None:
    everybody = {r: {"phase": "loading"} for r in range(4)}
    assert ask("SLW004", (late(2),), ranks=everybody).state == "clear"
    assert ask("SLW006", (late(2),), ranks=everybody).state == "hit"


def test_a_little_more_loading_is_no_fault() -> None:
    assert ask("SLW004", (late(2, 0.15),), ranks=LOADING).state == "clear"


def test_is_clear_when_nobody_is_late() -> None:
    assert ask("SLW004", ranks=LOADING).state == "clear"
