from msgspec.structs import replace

from allready.model import FactMissing, GpuFacts, Severity, Xid
from tests.fleets import check, fleet, healthy_node


def xids(*codes: int, age_s: float = 600.0) -> GpuFacts:
    facts = healthy_node(0, 1).gpu
    assert isinstance(facts, GpuFacts)
    bus = facts.gpus[1].pci_bus_id.lower().partition(".")[0]
    return replace(facts, xids=tuple(Xid(pci_bus_id=bus, code=c, age_s=age_s, text=f"NVRM: Xid ({c})") for c in codes))


def test_names_the_node_and_what_is_wrong_there() -> None:
    [hit] = check("GPU012", fleet(2, gpu={1: xids(31, 79)})).hits
    assert hit.culprits.nodes == (1,)
    assert {name: hit.values[name] for name, _ in EXPECTED} == dict(EXPECTED)


EXPECTED = (("gpu", 1), ("xid", 79))


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {"of programs": xids(13, 31, 43, 45), "contained": xids(63, 94), "none": xids()}
    wrong = [name for name, facts in harmless.items() if check("GPU012", fleet(2, gpu={0: facts, 1: facts})).hits]
    assert not wrong


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU012", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU012", fleet(2, gpu={1: FactMissing("no /proc")})).unchecked == {1: "no /proc"}


def test_an_old_one_is_information() -> None:
    [hit] = check("GPU012", fleet(1, gpu={0: xids(79, age_s=90_000.0)})).hits
    assert hit.severity is Severity.INFO
