from allready.model import FactMissing, Listener, PortHolder, UsageFacts
from tests.fleets import check, fleet


def listening(*listeners: Listener, free: int | None = 29501) -> UsageFacts:
    return UsageFacts(asked_ports=(29500, 29510), listeners=listeners, free_port=free)


KNOWN = Listener(port=29500, holder=PortHolder(pid=4242, command="python -m http.server", user="alice"))


def test_names_the_port_its_holder_and_a_free_one() -> None:
    [hit] = check("PRT011", fleet(2, usage={1: listening(KNOWN), 0: listening()})).hits
    assert (hit.culprits.nodes, hit.values["port"], hit.values["free"]) == ((1,), 29500, 29501)
    assert hit.values["end"] == "kill 4242"
    assert "alice" in str(hit.values["holder"])


def test_a_holder_that_may_not_be_seen_is_not_killed() -> None:
    [hit] = check("PRT011", fleet(1, usage={0: listening(Listener(port=29500, holder=PortHolder(pid=None)))})).hits
    assert "kill" not in str(hit.values["end"])


def test_a_free_range_is_clear() -> None:
    assert check("PRT011", fleet(1, usage={0: listening()})).state == "clear"


def test_without_a_range_it_is_clear() -> None:
    assert check("PRT011", fleet(1, usage={0: UsageFacts()})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("PRT011", fleet(1, usage={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
