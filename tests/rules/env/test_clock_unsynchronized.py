from msgspec.structs import replace

from allready.model import FactMissing, HostFacts, TimeFacts
from tests.fleets import check, fleet, healthy_node


def test_names_the_node_whose_clock_nothing_keeps() -> None:
    kept = TimeFacts(is_synchronized=True)
    [hit] = check("ENV019", fleet(2, time={0: kept, 1: TimeFacts(is_synchronized=False)})).hits
    assert hit.culprits.nodes == (1,)


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    quiet = TimeFacts(is_synchronized=False, services=("chronyd",))  # without rtcsync it tells the kernel nothing
    assert check("ENV019", fleet(1, time={0: quiet})).state == "clear"
    host = healthy_node(0, 1).host
    assert isinstance(host, HostFacts)
    inside = {0: replace(host, container="kubernetes")}
    assert check("ENV019", fleet(1, time={0: TimeFacts(is_synchronized=False)}, host=inside)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV019", fleet(1, time={0: FactMissing("no adjtimex")})).unchecked == {0: "no adjtimex"}


def test_healthy_nodes_are_clear() -> None:
    assert check("ENV019", fleet(3)).state == "clear"
