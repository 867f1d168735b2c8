from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, GpuFacts
from tests.fleets import check, fleet, healthy_node

SAME: dict[str, Any] = {"nvlinks": (True,) * 4}


def second(**changes: Any) -> GpuFacts:
    facts = healthy_node(0, 1).gpu
    assert isinstance(facts, GpuFacts)
    first = replace(facts.gpus[0], **{name: value for name, value in SAME.items() if name in changes})
    return replace(facts, gpus=(first, replace(facts.gpus[1], **changes)))


def test_names_the_node_and_what_is_wrong_there() -> None:
    [hit] = check("GPU015", fleet(2, gpu={1: second(nvlinks=(True, False, True, True))})).hits
    assert hit.culprits.nodes == (1,)
    assert {name: hit.values[name] for name, _ in EXPECTED} == dict(EXPECTED)


EXPECTED = (("gpu", 1), ("up", 3), ("other", 4))


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "all up": second(nvlinks=(True,) * 4),
        "none": second(),
        "another model": second(nvlinks=(), name="NVIDIA T400"),
    }
    wrong = [name for name, facts in harmless.items() if check("GPU015", fleet(2, gpu={0: facts, 1: facts})).hits]
    assert not wrong


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU015", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU015", fleet(2, gpu={1: FactMissing("no /proc")})).unchecked == {1: "no /proc"}
