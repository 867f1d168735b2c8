from allready.model import FactMissing, SoftwareFacts
from tests.fleets import check, fleet


def software(**versions: str) -> SoftwareFacts:
    return SoftwareFacts(versions={name.replace("_", "-"): version for name, version in versions.items()})


def test_names_the_node_and_what_is_wrong_there() -> None:
    [hit] = check(
        "ENV017", fleet(2, software={1: software(jax="0.9.0", jaxlib="0.9.0", jax_cuda12_plugin="0.8.2")})
    ).hits
    assert hit.culprits.nodes == (1,)
    assert {name: hit.values[name] for name, _ in EXPECTED} == dict(EXPECTED)


EXPECTED = (("plugin", "jax-cuda12-plugin"), ("version", "0.8.2"))


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "equal": software(jaxlib="0.9.0+x", jax_cuda12_plugin="0.9.0"),
        "none": software(jaxlib="0.9.0"),
        "no JAX": software(torch="2.13.0"),
        "one of two": software(jaxlib="0.9.0", jax_cuda12_plugin="0.8.2", jax_cuda13_plugin="0.9.0"),
    }
    wrong = [name for name, facts in harmless.items() if check("ENV017", fleet(2, software={0: facts, 1: facts})).hits]
    assert not wrong


def test_healthy_nodes_are_clear() -> None:
    assert check("ENV017", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV017", fleet(2, software={1: FactMissing("no /proc")})).unchecked == {1: "no /proc"}
