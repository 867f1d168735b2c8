from msgspec.structs import replace

from allready.model import GpuFacts, RdmaFacts, Severity
from tests.cases import cases
from tests.fleets import healthy_node
from tests.rules.variables.made import clear, here, hits, rdma, settings, values

CODE = "VAR021"


def gpus(name: str, count: int = 8) -> GpuFacts:
    facts = healthy_node(0, 1).gpu
    assert isinstance(facts, GpuFacts)
    one = facts.gpus[0]
    return replace(facts, gpus=tuple(replace(one, index=i, name=name) for i in range(count)))


@cases(
    "name",
    [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA H200",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA B200",
        "Tesla V100-SXM2-32GB",
        "NVIDIA H20",
    ],
)
def test_p2p_off_with_nvlink(name: str) -> None:
    assert values(CODE, here(NCCL_P2P_DISABLE="1"), gpu=gpus(name))["hardware"] == f"8 x {name}"


@cases("name", ["NVIDIA GeForce RTX 4090", "NVIDIA L40S", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 PCIe", "Tesla T4"])
def test_p2p_off_without_nvlink_may_be_needed(name: str) -> None:
    assert clear(CODE, here(NCCL_P2P_DISABLE="1"), gpu=gpus(name))


def test_one_gpu_has_no_peer() -> None:
    assert clear(CODE, here(NCCL_P2P_DISABLE="1"), gpu=gpus("NVIDIA H200", 1))


def test_infiniband_off_where_it_is() -> None:
    [hit] = hits(CODE, here(NCCL_IB_DISABLE="1"), rdma=rdma("mlx5_0"))
    assert (hit.severity, hit.values["hardware"]) == (Severity.ERROR, "mlx5_0:1 InfiniBand")
    assert hits(CODE, here(NCCL_NET="Socket"), rdma=rdma("mlx5_0"))


def test_roce_devices_of_virtual_machines_are_only_information() -> None:
    [hit] = hits(CODE, here(NCCL_IB_DISABLE="1"), rdma=rdma("mlx5_0", link_layer="Ethernet"))
    assert hit.severity is Severity.INFO


def test_infiniband_off_where_there_is_none() -> None:
    assert clear(CODE, here(NCCL_IB_DISABLE="1"), rdma=RdmaFacts(ports=()))
    assert clear(CODE, here(NCCL_IB_DISABLE="1"), rdma=rdma("mlx5_0", state="DOWN"))
    assert clear(CODE, here(NCCL_IB_DISABLE="0"), rdma=rdma("mlx5_0"))


def test_a_manifest_is_for_other_machines() -> None:
    dockerfile = ("Dockerfile", "FROM x\nENV NCCL_IB_DISABLE=1\n")
    assert clear(CODE, settings(dockerfile), rdma=rdma("mlx5_0"))
