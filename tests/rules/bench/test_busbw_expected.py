"""A bandwidth beside published values."""

from typing import Any

from msgspec.structs import replace

from allready import model
from allready.judging.expectation import Grade, Hardware, LinkSpec, compare, load_table, network_spec, pcie_spec
from allready.model.fill import in_english
from tests.fleets import check, fleet, healthy_collectives, healthy_node
from tests.rules.bench.made_up import point

GIB = 2**30
H100, H200, A100, B200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA B200"
HEALTHY = [  # gpu, GPUs, nodes, algorithm, size, busbw: measured by others on healthy machines
    (A100, 8, 1, "", 16 * GIB, 234.9), (A100, 8, 1, "", 8 * GIB, 231.6), (A100, 8, 1, "", GIB, 229.0),
    (A100, 16, 2, "", 2 * GIB, 78.3), (H100, 8, 1, "", 8 * GIB, 478.9), (H100, 8, 1, "", GIB, 466.0),
    (H100, 16, 2, "", GIB, 313.0), (H100, 16, 2, "", GIB, 437.0), (H100, 16, 2, "", 16 * GIB, 487.0),
    (H200, 8, 1, "", 16 * GIB, 482.3), (H200, 8, 1, "ring", 16 * GIB, 367.6), (H200, 4, 1, "", 4 * GIB, 363.0),
    (H200, 2, 1, "", GIB, 328.1), (H200, 2, 1, "ring", 2**28, 300.0), (H200, 4, 1, "", GIB, 352.8),
    (H200, 5, 1, "", 4 * GIB, 414.0), (H200, 6, 1, "", 4 * GIB, 436.0), (H200, 7, 1, "", 4 * GIB, 460.0),
    (H200, 8, 1, "", 2**20, 40.0), (H200, 32, 4, "", 16 * GIB, 369.0), (H100, 64, 8, "sharp", 8 * GIB, 387.0),
    (B200, 8, 1, "", GIB, 723.0), (B200, 8, 1, "ring", 16 * GIB, 682.0), (B200, 8, 1, "", 16 * GIB, 845.7),
    (B200, 32, 4, "", 16 * 2**20, 64.0), (B200, 32, 4, "", 16 * GIB, 381.8),
    ("AMD Instinct MI300X", 8, 1, "", 4 * GIB, 312.9),
    ("NVIDIA GB200", 72, 18, "", 8 * GIB, 835.0), ("NVIDIA GB200", 1440, 360, "", 16 * GIB, 405.0),
]  # fmt: skip


def test_every_healthy_machine_passes_and_the_same_machine_at_two_thirds_does_not() -> None:
    wrong: list[object] = []
    for gpu, gpus, nodes, algorithm, size_bytes, busbw in HEALTHY:
        hardware = Hardware(gpu=gpu, gpus=gpus, nodes=nodes, algorithm=algorithm)
        found = compare([point(size_bytes, busbw)], hardware)
        if found is None or found.grade is not Grade.GOOD:
            wrong.append((hardware, size_bytes, busbw, found and found.value))
        elif (ill := compare([point(size_bytes, 0.66 * found.value.busbw)], hardware)) is None or (
            ill.grade is not Grade.POOR
        ):
            wrong.append((hardware, size_bytes, "ill", ill and ill.value))
    assert wrong == []


NAMES = {  # pattern of the file -> a GPU of this kind
    "V100-SXM": "Tesla V100-SXM2-32GB", "A100-SXM": A100, "A100-SXM4-80GB": A100, "H100 80GB HBM3": H100,
    "H200(?! NVL)": H200, "H100 80GB HBM3|H200(?! NVL)": H200, "^(?!.*GB200).*B200": B200, "GB200": "NVIDIA GB200",
    "MI300X": "AMD Instinct MI300X", "": "NVIDIA L40S",
}  # fmt: skip


def test_every_row_of_the_file_is_passed_by_the_machine_that_it_was_measured_on() -> None:
    wrong = []
    for value in load_table().value:
        link = LinkSpec(name=value.link, advertised=2 * value.busbw) if value.link else None
        nodes = value.nodes or 2
        hardware = Hardware(
            gpu=NAMES[value.gpu],
            gpus=value.gpus or 8 * nodes,
            nodes=nodes,
            algorithm=value.algorithm or "ring",
            link=link,
        )
        found = compare([point(value.size_bytes, value.busbw)], hardware)
        if found is None or found.grade is not Grade.GOOD or found.value.busbw > value.busbw:
            wrong.append((value, found and found.value))
    assert wrong == []


def network(count: int, rate: float, kind: str = "RDMA") -> Any:
    return network_spec([rate] * count, kind)


LINKS = [  # GPU, GPUs, nodes, link, algorithm, size, busbw: measured by others on healthy machines, or expected
    ("NVIDIA A100-PCIE-40GB", 8, 1, pcie_spec(4, 16, has_p2p=True), "", GIB, 24.5),
    ("NVIDIA H100 PCIe", 8, 1, pcie_spec(5, 16, has_p2p=True), "", 4 * GIB, 48.0),
    (H200, 32, 4, network(8, 400.0), "ring", 16 * GIB, 369.0), (H100, 32, 4, network(8, 400.0), "", 8 * GIB, 375.0),
    (A100, 32, 4, network(8, 200.0), "", 8 * GIB, 192.0), ("NVIDIA L40S", 2, 2, network(1, 400.0), "", GIB, 48.1),
    ("NVIDIA L40S", 16, 2, network(1, 100.0, "TCP"), "", GIB, 10.4),
]  # fmt: skip


def test_the_values_of_a_link_are_passed_by_healthy_machines_and_not_by_slow_ones() -> None:
    wrong: list[object] = []
    for gpu, gpus, nodes, link, algorithm, size_bytes, busbw in LINKS:
        hardware = Hardware(gpu=gpu, gpus=gpus, nodes=nodes, link=link, algorithm=algorithm)
        good, ill = (compare([point(size_bytes, rate)], hardware) for rate in (busbw, 0.6 * busbw))
        if not (good and ill) or (good.grade, ill.grade) != (Grade.GOOD, Grade.POOR):
            wrong.append((hardware, good and good.value, ill and ill.grade))
    assert wrong == []


def test_a_link_without_a_value_gives_no_verdict() -> None:
    for gpu, gpus, nodes, link in (
        ("NVIDIA L4", 8, 1, pcie_spec(4, 16, has_p2p=False)),  # through host memory
        ("NVIDIA L4", 8, 1, pcie_spec(4, 8, has_p2p=True)),
        ("NVIDIA L4", 4, 1, pcie_spec(4, 16, has_p2p=True)),
        ("NVIDIA L4", 8, 2, network(1, 200.0, "EFA")),
        ("NVIDIA L4", 8, 2, network(2, 200.0)),
        (H100, 16, 2, network(32, 100.0, "EFA")),
        ("NVIDIA L4", 8, 2, None),
    ):
        hardware = Hardware(gpu=gpu, gpus=gpus, nodes=nodes, link=link)
        size_bytes = GIB // 2 if nodes == 2 and gpu == H100 else GIB
        assert compare([point(size_bytes, 1.0)], hardware) is None, hardware


def test_every_value_has_a_source_and_no_flat_floor_is_one() -> None:
    table = load_table()
    assert {v.source for v in table.value} <= {s.id for s in table.source}
    assert {v.kind for v in table.value} <= {"measured", "expected"}
    assert not [v for v in table.value if v.busbw in {60.0, 150.0, 160.0, 208.0, 250.0, 300.0, 431.0}]
    keys = [(v.gpu, v.link, v.gpus, v.nodes, v.algorithm, v.size_bytes) for v in table.value]
    assert len(keys) == len(set(keys))


def test_nothing_is_compared_that_nobody_published() -> None:
    for hardware, size_bytes in (
        (Hardware(gpu="NVIDIA L4", gpus=8, nodes=1), GIB),
        (Hardware(gpu="NVIDIA H100 PCIe", gpus=8, nodes=1), GIB),
        (Hardware(gpu="NVIDIA H200 NVL", gpus=8, nodes=1), GIB),
        (Hardware(gpu=H200, gpus=3, nodes=1), GIB),
        (Hardware(gpu=H200, gpus=8, nodes=2), GIB),
        (Hardware(gpu=H200, gpus=8, nodes=1), 2 * 2**20),  # a size without a value, where the curve is steep
        (Hardware(gpu=H200, gpus=8, nodes=1), 4096),
    ):
        assert compare([point(size_bytes, 1.0)], hardware) is None, hardware
    assert compare([point(GIB, 1.0, "all_gather")], Hardware(gpu=H200, gpus=8, nodes=1)) is None


def measured(busbw: float, gpus: int = 4, **variables: str) -> Any:
    node = healthy_node(0, 1)
    assert isinstance(node.gpu, model.GpuFacts)
    gpu = tuple(replace(node.gpu.gpus[0], index=i, name=H200) for i in range(gpus))
    run = healthy_collectives(gpus).runs[0]
    collectives = model.Collectives(runs=(replace(run, points=(point(4 * GIB, busbw),)),))
    world = model.World(
        num_nodes=1, world_size=gpus, nodes=(model.WorldNode(node_rank=0, name="gpu0", ranks=tuple(range(gpus))),)
    )
    return check(
        "BEN001",
        fleet(
            1,
            world=world,
            collectives=collectives,
            gpu={0: replace(node.gpu, gpus=gpu, visible=tuple(range(gpus)))},
            env={0: model.EnvFacts(variables=variables)},
        ),
    )


def test_a_healthy_machine_gets_information_and_a_slow_one_an_error() -> None:
    for busbw, severity in ((360.0, "info"), (300.0, "warning"), (200.0, "error")):
        [hit] = measured(busbw).hits
        assert hit.severity == severity
        assert hit.culprits.variables == ()
        assert "stas00" in hit.evidence[0].source
    assert "80 % line" in in_english(hit.values["link"])


def test_p2p_that_is_off_is_named_as_what_took_nvlink_away() -> None:
    [hit] = measured(12.0, NCCL_P2P_DISABLE="1").hits
    assert (hit.severity, hit.culprits.variables) == ("error", ("NCCL_P2P_DISABLE",))


def test_without_nvls_the_ring_is_expected() -> None:
    [with_nvls] = measured(365.0, gpus=8).hits
    [without] = measured(365.0, gpus=8, NCCL_NVLS_ENABLE="0").hits
    assert (with_nvls.severity, without.severity) == ("warning", "info")


def test_a_check_s_own_sweep_and_ranks_that_share_a_gpu_are_not_judged() -> None:
    assert check("BEN001", fleet(2)).state == "clear"
    two = measured(12.0)
    assert two.hits
    node = healthy_node(0, 1)
    assert isinstance(node.gpu, model.GpuFacts)
    one_gpu = replace(node.gpu, gpus=(replace(node.gpu.gpus[0], name=H200),), visible=(0,))
    run = replace(healthy_collectives(4).runs[0], points=(point(4 * GIB, 12.0),))
    world = model.World(
        num_nodes=1, world_size=4, nodes=(model.WorldNode(node_rank=0, name="gpu0", ranks=(0, 1, 2, 3)),)
    )
    shared = fleet(1, world=world, gpu={0: one_gpu}, collectives=model.Collectives(runs=(run,)))
    assert check("BEN001", shared).state == "clear"


def test_the_algorithm_that_nccl_logged_chooses_the_value_and_one_without_a_value_gives_no_verdict() -> None:
    hardware, plain = Hardware(gpu=H200, gpus=8, nodes=1), point(16 * GIB, 367.6)
    by_logs = {}
    for algorithm in ("", "NVLS", "RING", "TREE"):
        found = compare([replace(plain, algorithm=algorithm, protocol="SIMPLE")], hardware)
        by_logs[algorithm] = None if found is None else (found.value.algorithm, found.grade)
    assert by_logs["RING"] == ("ring", Grade.GOOD)
    assert by_logs["NVLS"] == by_logs[""]
    assert by_logs["NVLS"] is not None
    assert by_logs["NVLS"][0] == "nvls"
    assert by_logs["TREE"] is None
