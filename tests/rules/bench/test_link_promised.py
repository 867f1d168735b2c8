"""A bandwidth beside what the link promises, where no rank published a value; and what the hardware is taken for."""

from typing import Any

from msgspec.structs import replace

from allready import model
from allready.model.fill import in_english
from tests.fleets import check, fleet, healthy_collectives, healthy_node
from tests.rules.bench.made_up import point

GIB = 2**30
L4 = "NVIDIA L4"


def one_node(
    busbw: float,
    *,
    name: str = L4,
    p2p: model.P2pStatus = model.P2pStatus.OK,
    gpus: int = 4,
    lanes: int = 16,
    **more: Any,
) -> Any:
    node = healthy_node(0, 1)
    assert isinstance(node.gpu, model.GpuFacts)
    of = [
        replace(node.gpu.gpus[0], index=i, name=name, max_pcie_generation=4, pcie_width=lanes, **more)
        for i in range(gpus)
    ]
    pairs = tuple(model.GpuPair(a=a, b=b, p2p=p2p) for a in range(gpus) for b in range(a + 1, gpus))
    ranks = tuple(range(gpus))
    run = replace(healthy_collectives(gpus).runs[0], points=(point(GIB, busbw), point(GIB // 2, busbw / 2)))
    world = model.World(num_nodes=1, world_size=gpus, nodes=(model.WorldNode(node_rank=0, name="g", ranks=ranks),))
    facts = replace(node.gpu, gpus=tuple(of), visible=ranks, pairs=pairs)
    return fleet(1, world=world, collectives=model.Collectives(runs=(run,)), gpu={0: facts})


def test_pcie_is_named_with_its_generation_lanes_and_the_80_percent_line() -> None:
    for busbw, side in ((26.0, "84% of it, above the 80 % line"), (12.4, "40% of it, below the 80 % line")):
        [hit] = check("BEN011", one_node(busbw)).hits
        assert in_english(hit.values["link"]) == f"PCIe 4 x16 (P2P) 31 GB/s, {side}"
        assert hit.culprits == model.Culprits()
    [hit] = check("BEN011", one_node(5.0, p2p=model.P2pStatus.CHIPSET, lanes=8)).hits
    assert in_english(hit.values["link"]).startswith("PCIe 4 x8 15.5 GB/s")
    assert "4 x NVIDIA L4" in hit.evidence[0].text


def test_a_published_value_leaves_it_to_the_comparison() -> None:
    eight = one_node(26.0, gpus=8)
    assert check("BEN011", eight).hits == ()
    [hit] = check("BEN001", eight).hits
    assert (hit.severity, hit.values["expected"]) == ("info", "24")
    [low] = check("BEN001", one_node(12.0, gpus=8)).hits
    assert low.severity == "error"


def test_a_bridge_between_some_gpus_is_no_link_among_all() -> None:
    assert check("BEN011", one_node(26.0, nvlinks=(True, True))).hits == ()
    [hit] = check("BEN011", one_node(300.0, name="NVIDIA H200", gpus=3, nvlinks=(True, True))).hits
    assert "NVLink 4 450 GB/s, 67% of it, below" in in_english(hit.values["link"])
    assert "NVLink 2/2 up" in hit.evidence[0].text


def two_nodes(busbw: float, **facts: Any) -> Any:
    run = replace(healthy_collectives(4).runs[0], points=(point(GIB, busbw),))
    return fleet(2, collectives=model.Collectives(runs=(run,)), **facts)


def ports(*rates: float, provider: str | None = None) -> model.RdmaFacts:
    return model.RdmaFacts(
        ports=tuple(
            model.RdmaPort(
                device=f"mlx5_{i}",
                port=1,
                state="ACTIVE",
                physical_state="LinkUp",
                link_layer="InfiniBand",
                rate_gbit_per_s=rate,
                provider=provider,
            )
            for i, rate in enumerate(rates)
        )
    )


def test_between_nodes_the_cards_of_a_node_count_rdma_before_tcp() -> None:
    [hit] = check("BEN001", two_nodes(47.0)).hits  # healthy nodes have one card of 400 Gbit/s
    assert (hit.severity, hit.values["expected"]) == ("info", "48")
    assert "1 x 400 Gbit/s RDMA 50 GB/s, 94% of it, above the 80 % line" in in_english(hit.values["link"])
    two = ports(200.0, 200.0)
    [hit] = check("BEN011", two_nodes(30.0, rdma={0: two, 1: two})).hits
    assert in_english(hit.values["link"]) == "2 x 200 Gbit/s RDMA 50 GB/s, 60% of it, below the 80 % line"
    none = model.RdmaFacts(ports=())
    [hit] = check("BEN001", two_nodes(10.2, rdma={0: none, 1: none})).hits
    assert "1 x 100 Gbit/s TCP" in in_english(hit.values["link"])


def test_cards_that_differ_or_are_not_known_promise_nothing() -> None:
    efa = ports(200.0, provider="efa")
    [hit] = check("BEN011", two_nodes(20.0, rdma={0: efa, 1: efa})).hits
    assert "EFA" in in_english(hit.values["link"])
    assert check("BEN011", two_nodes(20.0, rdma={0: ports(200.0), 1: ports(400.0)})).hits == ()
    assert check("BEN011", two_nodes(20.0, rdma={0: ports(200.0, 400.0), 1: ports(200.0, 400.0)})).hits == ()


def test_a_check_s_own_sweep_is_not_shown() -> None:
    assert check("BEN011", fleet(2)).hits == ()
