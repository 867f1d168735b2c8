"""A node whose GPUs have NVLink, and collectives that do not go over it."""

from typing import Any

from msgspec.structs import replace

from allready import model
from tests.fleets import check, fleet, healthy_collectives, healthy_node
from tests.rules.bench.made_up import point

MIB = 2**20
H100, H200, L40 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA L40S"


def found(
    busbw: float,
    *,
    name: str = H100,
    gpus: int = 2,
    ranks: int = 2,
    nodes: int = 1,
    size_bytes: int = 1024 * MIB,
    variables: dict[str, str] | None = None,
) -> Any:
    node = healthy_node(0, 1)
    assert isinstance(node.gpu, model.GpuFacts)
    one = replace(node.gpu.gpus[0], name=name, nvlinks=(True,) * 18)
    facts = replace(node.gpu, gpus=tuple(replace(one, index=i) for i in range(gpus)), visible=tuple(range(gpus)))
    run = replace(healthy_collectives(ranks).runs[0], points=(point(size_bytes, busbw),))
    here = ranks // nodes
    world = model.World(
        num_nodes=nodes,
        world_size=ranks,
        nodes=tuple(
            model.WorldNode(node_rank=n, name=f"gpu{n}", ranks=tuple(range(n * here, (n + 1) * here)))
            for n in range(nodes)
        ),
    )
    return check(
        "BEN010",
        fleet(
            nodes,
            world=world,
            collectives=model.Collectives(runs=(run,)),
            gpu=dict.fromkeys(range(nodes), facts),
            env=dict.fromkeys(range(nodes), model.EnvFacts(variables=variables or {})),
        ),
    )


def test_host_memory_instead_of_nvlink_is_named_with_the_variable_that_did_it() -> None:
    [hit] = found(21.0, variables={"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((0,), ("NCCL_P2P_DISABLE",))
    assert (hit.values["name"], hit.values["up"]) == ("NVLink 4", "GPU 0: 18 of 18, GPU 1: 18 of 18")


def test_without_a_variable_the_node_is_named() -> None:
    [hit] = found(48.0, name=H200, gpus=4, ranks=4).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((0,), ())


def test_without_facts_of_the_gpus_it_is_not_checked() -> None:
    run = replace(healthy_collectives(2).runs[0], points=(point(1024 * MIB, 21.0),))
    lost = model.FactMissing("no NVML")
    outcome = check("BEN010", fleet(1, collectives=model.Collectives(runs=(run,)), gpu={0: lost}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "no NVML"})


def test_what_says_nothing_about_nvlink_names_nobody() -> None:
    for case in (
        found(320.0),  # healthy
        found(200.0, variables={"NCCL_P2P_DISABLE": "1"}),  # set, and without effect
        found(21.0, name=L40),  # no NVLink
        found(21.0, size_bytes=MIB),  # too small to tell
        found(21.0, gpus=1),  # ranks share a GPU
        found(21.0, ranks=4, nodes=2),  # a network between them
    ):
        assert case.hits == ()
