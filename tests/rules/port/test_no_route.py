import pytest

from allready.model import Confidence, FactMissing, FaultClass
from tests.fleets import check, fleet
from tests.rules.port.fleets import contact, worker_alone


@pytest.mark.parametrize("detail", ["Network is unreachable (ENETUNREACH)", "Invalid argument (EINVAL)"])
def test_suspects_the_address_while_nobody_gets_through(detail: str) -> None:
    [hit] = check("PRT003", worker_alone("no_route", detail=detail, address="10.9.9.9")).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((1,), ("MASTER_ADDR",))
    assert hit.fault_class is None
    assert hit.values["detail"] == detail


def test_a_blackhole_inside_the_own_subnet_is_a_route_too() -> None:
    assert check("PRT003", worker_alone("no_route", detail="Invalid argument (EINVAL)", error="EINVAL")).state == "hit"


def test_suspects_the_nodes_route_once_others_got_through() -> None:
    one = fleet(
        3, master_contact={2: contact("no_route", detail="Network is unreachable (ENETUNREACH)", error="ENETUNREACH")}
    )
    [hit] = check("PRT003", one).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((2,), ())
    assert hit.fault_class is FaultClass.START_PATH


def test_a_silent_neighbour_is_node_0s_absence() -> None:
    silent = worker_alone("no_route", detail="No route to host (EHOSTUNREACH)", error="EHOSTUNREACH")
    assert check("PRT003", silent).state == "clear"
    assert check("JOB011", silent).state == "hit"


def test_a_silent_neighbour_behind_a_name_is_a_path_and_nobodys_fault() -> None:
    """Node 0's machine may be off, or the name may mean another machine on this node alone."""
    silent = worker_alone(
        "no_route",
        detail="No route to host (EHOSTUNREACH)",
        error="EHOSTUNREACH",
        master_addr="node0",
        address="10.0.0.77",
    )
    [hit] = check("PRT003", silent).hits
    assert (hit.culprits.nodes, hit.culprits.variables, hit.culprits.links) == ((), (), ((1, 0),))
    assert (hit.fault_class, hit.confidence) == (FaultClass.START_PATH, Confidence.LIKELY)
    [beside] = check("JOB011", silent).hits
    assert beside.confidence is Confidence.POSSIBLE


def test_is_clear_when_all_got_through() -> None:
    assert check("PRT003", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("PRT003", fleet(2, master_contact={1: FactMissing("interrupted")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "interrupted"})
