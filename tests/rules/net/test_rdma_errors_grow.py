from typing import Any

from allready.model import FactMissing, RdmaFacts, RdmaPort
from tests.fleets import check, fleet


def rdma(watched_s: float | None = 0.5, **changes: Any) -> RdmaFacts:
    healthy = {"state": "ACTIVE", "physical_state": "LinkUp", "link_layer": "InfiniBand"}
    return RdmaFacts(ports=(RdmaPort(device="mlx5_3", port=1, **{**healthy, **changes}),), watched_s=watched_s)


def test_names_the_node_the_port_and_the_errors() -> None:
    bad = rdma(growth={"symbol_error": 40, "out_of_sequence": 3}, counts={"symbol_error": 900})
    [hit] = check("NET026", fleet(2, rdma={0: rdma(), 1: bad})).hits
    assert hit.culprits.nodes == (1,)
    assert (hit.values["port"], hit.values["errors"]) == ("mlx5_3/1", "symbol_error +40")
    for name in ("link_downed", "link_error_recovery", "local_link_integrity_errors"):
        assert len(check("NET026", fleet(2, rdma={0: rdma(), 1: rdma(growth={name: 1})})).hits) == 1, name


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "high, but standing still": rdma(counts={"symbol_error": 65535, "link_downed": 9}),
        "a symbol now and then": rdma(growth={"symbol_error": 3}),
        "a full network": rdma(growth={"out_of_sequence": 900, "packet_seq_err": 80, "rnr_nak_retry_err": 4}),
        "down": rdma(state="DOWN", growth={"link_downed": 1}),
        "RoCE": rdma(link_layer="Ethernet", growth={"symbol_error": 900}),
        "watched for long": rdma(watched_s=60.0, growth={"symbol_error": 20}),
        "not watched": rdma(watched_s=None, growth={"symbol_error": 20}),
    }
    assert not [name for name, one in harmless.items() if check("NET026", fleet(2, rdma={0: one, 1: one})).hits]


def test_healthy_nodes_are_clear() -> None:
    assert check("NET026", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET026", fleet(1, rdma={0: FactMissing("hidden")})).unchecked == {0: "hidden"}
