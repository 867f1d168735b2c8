from allready.model import EnvFacts, FactMissing
from tests.fleets import check, fleet


def env(value: str | None) -> EnvFacts:
    return EnvFacts(variables={} if value is None else {"OMP_NUM_THREADS": value})


def test_names_the_node_and_what_is_wrong_there() -> None:
    [hit] = check("ENV016", fleet(2, env={1: env("4096")})).hits
    assert hit.culprits.nodes == (1,)
    assert {name: hit.values[name] for name, _ in EXPECTED} == dict(EXPECTED)


EXPECTED = (("threads", "4096"),)


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "a share": env("4"),
        "one": env("1"),
        "not set": env(None),
        "nested": env("4,2"),
        "no number": env("many"),
    }
    wrong = [name for name, facts in harmless.items() if check("ENV016", fleet(2, env={0: facts, 1: facts})).hits]
    assert not wrong


def test_healthy_nodes_are_clear() -> None:
    assert check("ENV016", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV016", fleet(2, env={1: FactMissing("no /proc")})).unchecked == {1: "no /proc"}
