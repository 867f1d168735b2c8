from .moving import ask, late


def test_names_the_rank_on_the_node_where_processes_wait_for_a_cpu() -> None:
    [hit] = ask("SLW005", (late(1),), pressure={0: 0.02, 1: 0.6, 2: 0.01, 3: 0.02}).hits
    assert (hit.culprits.ranks, hit.values["pressure"]) == ((1,), "60%")


def test_pressure_that_is_the_same_everywhere_explains_nothing() -> None:
    pressure = dict.fromkeys(range(4), 0.6)
    assert ask("SLW005", (late(1),), pressure=pressure).state == "clear"
    assert ask("SLW006", (late(1),), pressure=pressure).state == "hit"


def test_pressure_on_another_node_explains_nothing() -> None:
    assert ask("SLW005", (late(1),), pressure={0: 0.7, 1: 0.02, 2: 0.01, 3: 0.02}).state == "clear"


def test_without_pressure_figures_nothing_is_claimed() -> None:
    assert ask("SLW005", (late(1),)).state == "clear"
