from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, RdmaFacts
from tests.fleets import check, fleet, healthy_node


def port(**changes: Any) -> RdmaFacts:
    healthy = healthy_node(0, 1).rdma
    assert isinstance(healthy, RdmaFacts)
    return RdmaFacts(ports=(replace(healthy.ports[0], **changes),))


def test_names_the_port_that_has_a_link_and_is_not_set_up() -> None:
    [hit] = check("NET021", fleet(2, rdma={1: port(state="INIT")})).hits
    assert (hit.culprits.nodes, hit.values["ports"], hit.values["state"]) == ((1,), "mlx5_0/1", "INIT")


def test_a_port_without_a_cable_is_clear() -> None:
    for physical in ("Polling", "Disabled", "Sleep"):
        assert check("NET021", fleet(1, rdma={0: port(state="DOWN", physical_state=physical)})).state == "clear"


def test_ethernet_needs_no_subnet_manager() -> None:
    assert check("NET021", fleet(1, rdma={0: port(state="INIT", link_layer="Ethernet")})).state == "clear"


def test_an_active_port_and_no_port_are_clear() -> None:
    assert check("NET021", fleet(1)).state == "clear"
    assert check("NET021", fleet(1, rdma={0: RdmaFacts(ports=())})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET021", fleet(1, rdma={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
