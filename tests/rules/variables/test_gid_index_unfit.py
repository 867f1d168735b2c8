from allready.model import RdmaFacts
from tests.rules.variables.made import clear, here, rdma, values

CODE = "VAR020"
GIDS = (
    "0 IB/RoCE v1 fe80:0000:0000:0000:0000:0000:0000:0001",
    "1 RoCE v2 fe80:0000:0000:0000:0000:0000:0000:0001",
    "2 IB/RoCE v1 0000:0000:0000:0000:0000:ffff:0a00:0001",
    "3 RoCE v2 0000:0000:0000:0000:0000:ffff:0a00:0001",
)
ROCE = rdma("mlx5_0", link_layer="Ethernet", gids=GIDS)


def test_another_type() -> None:
    found = values(CODE, here(NCCL_IB_GID_INDEX="2"), rdma=ROCE)
    assert (found["device"], found["type"], found["better"]) == ("mlx5_0:1", "IB/RoCE v1", 3)
    assert found["command"] == "export NCCL_IB_GID_INDEX=3"


def test_no_gid_at_all() -> None:
    assert values(CODE, here(NCCL_IB_GID_INDEX="7"), rdma=ROCE)["type"] is None


def test_roce_v2_is_right() -> None:
    assert clear(CODE, here(NCCL_IB_GID_INDEX="3"), rdma=ROCE)
    assert clear(CODE, here(NCCL_IB_GID_INDEX="1"), rdma=ROCE)
    assert clear(CODE, here(NCCL_IB_GID_INDEX="-1"), rdma=ROCE)


def test_infiniband_has_indices_of_another_kind() -> None:
    assert clear(CODE, here(NCCL_IB_GID_INDEX="0"), rdma=rdma("mlx5_0", gids=GIDS))


def test_devices_that_the_filter_leaves_out_do_not_count() -> None:
    other = rdma("mlx5_1", link_layer="Ethernet", gids=GIDS[:1])
    both = RdmaFacts(ports=(*ROCE.ports, *other.ports))
    assert clear(CODE, here(NCCL_IB_GID_INDEX="3", NCCL_IB_HCA="mlx5_0"), rdma=both)
    assert values(CODE, here(NCCL_IB_GID_INDEX="3"), rdma=both)["device"] == "mlx5_1:1"
