from typing import Any

from msgspec.structs import replace

from allready.facts.exchange import to_json
from allready.model import (
    CoreDumps,
    EnvFacts,
    FactMissing,
    GpuFacts,
    Import,
    ImportFacts,
    LimitFacts,
    RdmaFacts,
    RdmaPort,
    SoftwareFacts,
    StackLimit,
    TimeFacts,
)
from allready.report.facts_table import FactRow, rows, typed
from tests.fleets import fleet, healthy_node


def table(num_nodes: int, **changes: Any) -> dict[str, FactRow]:
    made_up = fleet(num_nodes, **changes)
    return {row.label.text_in("en"): row for row in rows({n: to_json(node) for n, node in made_up.nodes.items()})}


def test_marks_the_one_node_with_another_version() -> None:
    row = table(4, software={3: SoftwareFacts(versions={"python": "3.11.2"})})["python"]
    assert row.odd == {3}
    assert not row.same


def test_marks_nobody_on_a_tie() -> None:
    row = table(2, software={1: SoftwareFacts(versions={"python": "3.11.2"})})["python"]
    assert (row.odd, row.same) == (frozenset(), False)


def test_a_variable_that_one_node_lacks_or_has_alone_is_odd() -> None:
    found = table(4, env={2: EnvFacts(variables={"NCCL_IB_DISABLE": "1"})})
    assert found["NCCL_DEBUG"].odd == {2}
    assert found["NCCL_DEBUG"].values[2].text_in("en") == "not set"
    assert found["NCCL_IB_DISABLE"].odd == {2}


def test_what_is_a_nodes_own_marks_nobody() -> None:
    found = table(4)
    assert found["host name"].odd == frozenset()
    assert found["eth0 address"].odd == frozenset()
    assert not any(row.odd for row in found.values())


def test_a_fact_that_is_not_known_is_not_odd_and_not_same() -> None:
    row = table(4, software={1: FactMissing("import crashed")})["torch"]
    assert (row.odd, row.same) == (frozenset(), False)
    assert row.values[1].text_in("en") == "– (import crashed)"


def test_a_fact_that_no_node_has_is_one_row_with_the_reason() -> None:
    found = table(2, rdma={n: FactMissing("no /sys") for n in range(2)})
    assert found["InfiniBand and RoCE"].values[0].text_in("zh") == "– (no /sys)"


def test_a_fact_that_a_node_cannot_have_is_a_dash() -> None:
    found = table(2)
    assert found["Contact with node 0"].values[0].text_in("en") == "–"
    assert "required field" not in "".join(v.text_in("en") for row in found.values() for v in row.values.values())


def test_how_an_import_ended_and_yes_and_no_are_said_in_the_readers_language() -> None:
    ends = (
        Import(module="torch", outcome="silent", duration_s=1.8, limit_s=1.8),
        Import(module="jax", outcome="imported", duration_s=1.0, limit_s=9.0),
    )
    found = table(1, imports={0: ImportFacts(modules=ends)}, time={0: TimeFacts(is_synchronized=False)})
    shown = [found[name].values[0] for name in ("import torch", "import jax", "clock synchronized")]
    assert [one.text_in("en") for one in shown] == ["silent (1.8 s)", "imported", "no"]
    assert [one.text_in("zh") for one in shown] == ["无应答（1.8 s）", "已导入", "否"]


def test_a_saved_fact_of_another_shape_is_not_known_with_the_reason() -> None:
    fact = typed("host", {"hostname": 7})
    assert isinstance(fact, FactMissing)
    assert "Expected `str`" in fact.why


def test_shows_what_an_old_save_lacks_only_where_it_is_known() -> None:
    healthy = healthy_node(0, 1)
    assert isinstance(healthy.limits, LimitFacts)
    assert isinstance(healthy.gpu, GpuFacts)
    gpu = replace(healthy.gpu.gpus[0], max_pcie_generation=4, own_pcie_generation=5, is_persistent=True)
    port = RdmaPort(
        device="mlx5_0",
        port=1,
        state="ACTIVE",
        physical_state="LinkUp",
        link_layer="InfiniBand",
        num_lanes=4,
        firmware="28.1",
        bond="bond0",
        bonded={"e0": "up", "e1": "down"},
        counts={"symbol_error": 9},
        growth={"symbol_error": 2},
    )
    roce = RdmaPort(
        device="mlx5_1", port=1, state="ACTIVE", physical_state="LinkUp", link_layer="Ethernet", provider="mlx5_core",
        gids=("0 IB/RoCE v1 fe80::1", "1 RoCE v2 fe80::1", "3 RoCE v2 0000:0000:0000:0000:0000:ffff:0a00:0001"),
    )  # fmt: skip
    cores = [CoreDumps(pattern="x", limit_bytes=None, place="folder", target=folder) for folder in ("/a", "/a", "/b")]
    stack = StackLimit(soft_bytes=2**23, hard_bytes=None)
    limits = {n: replace(healthy.limits, cores=one, stack=stack) for n, one in enumerate(cores)}
    gpus = {1: replace(healthy.gpu, gpus=(replace(gpu, nvlink_errors={"replay": 3}),))}
    found = table(3, limits=limits, gpu=gpus, rdma={1: RdmaFacts(ports=(port, roce), others=("cxi0",))})
    assert found["core dumps"].odd == {2}  # one text, another folder
    texts = {label: row.values[1].text_in("en") for label, row in found.items()}
    expected = {
        "core dumps": "in /a",
        "stack (soft / hard)": "8 MiB / ∞",
        "mlx5_0/1": "ACTIVE · LinkUp · InfiniBand · 4X · bond0: e0 up, e1 down",
        "firmware of mlx5_0/1": "28.1",
        "mlx5_1/1": "ACTIVE · LinkUp · Ethernet · mlx5_core",
        "GID index for RoCE v2 on mlx5_1/1": "3 (0000:0000:0000:0000:0000:ffff:0a00:0001)",
        "devices of other fabrics": "cxi0",
        "errors counted by mlx5_0/1": "symbol_error 9",
        "errors of mlx5_0/1 while this was read": "symbol_error 2",
        "PCIe generation (of slot and GPU / of the GPU)": "1 × 4 / 5",
        "persistence mode": "1 × on",
        "NVLink errors of GPU 0": "replay 3",
    }
    assert {label: texts.get(label) for label in expected} == expected
    old = {row.label.text_in("en") for row in rows({0: to_json(healthy)})}
    assert old.isdisjoint(set(expected) - {"mlx5_0/1"})
