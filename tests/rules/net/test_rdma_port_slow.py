from allready.model import FactMissing, Fleet, RdmaFacts, RdmaPort, Severity
from tests.fleets import check, commands, fleet


def port(
    number: int, rate: float = 400.0, lanes: int = 4, *, layer: str = "InfiniBand", state: str = "ACTIVE"
) -> RdmaPort:
    return RdmaPort(
        device=f"mlx5_{number}",
        port=1,
        state=state,
        physical_state="LinkUp",
        link_layer=layer,
        rate_gbit_per_s=rate,
        num_lanes=lanes,
    )


def found(*ports: RdmaPort) -> Fleet:
    return fleet(2, rdma={1: RdmaFacts(ports=ports)})


SEVEN = tuple(port(i) for i in range(7))


def test_names_the_port_that_runs_over_one_lane() -> None:
    [hit] = check("NET031", found(*SEVEN, port(7, 100.0, 1))).hits
    assert (hit.culprits.nodes, hit.severity) == ((1,), None)
    assert (hit.values["port"], hit.values["rate"], hit.values["usual"], hit.values["count"]) == (
        "mlx5_7/1", "100", "400", 7,
    )  # fmt: skip
    assert commands("NET031", hit) == ["ibstat mlx5_7 1; sudo mlxlink -d mlx5_7 -m"]


def test_a_slow_one_with_all_of_its_lanes_may_be_of_another_kind() -> None:
    [hit] = check("NET031", found(*SEVEN, port(7, 100.0, 4))).hits
    assert hit.severity is Severity.INFO


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "all alike": SEVEN,
        "half the rate": (*SEVEN, port(7, 200.0, 4)),
        "Ethernet": (*SEVEN, port(7, 25.0, 1, layer="Ethernet")),
        "a port that is down": (*SEVEN, port(7, 10.0, 4, state="DOWN")),
        "one of two": (port(0), port(1, 100.0, 1)),
        "no majority": (port(0), port(1), port(2, 100.0, 1), port(3, 100.0, 1)),
        "RoCE of 25 Gbit/s on one lane each": tuple(port(i, 25.0, 1, layer="Ethernet") for i in range(4)),
    }
    assert not [name for name, ports in harmless.items() if check("NET031", found(*ports)).hits]


def test_healthy_nodes_are_clear() -> None:
    assert check("NET031", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET031", fleet(2, rdma={1: FactMissing("no /sys")})).unchecked == {1: "no /sys"}
