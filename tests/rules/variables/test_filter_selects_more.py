from tests.rules.variables.made import clear, here, net, rdma, values

CODE = "VAR018"
MANY = rdma(*(f"mlx5_{n}" for n in range(12)))


def test_a_full_name_is_the_beginning_of_others() -> None:
    found = values(CODE, here(NCCL_IB_HCA="mlx5_1"), rdma=MANY)
    assert (found["entry"], found["others"], found["better"]) == ("mlx5_1", "mlx5_10, mlx5_11", "=mlx5_1")
    assert found["command"] == "export NCCL_IB_HCA==mlx5_1"


def test_interfaces_too() -> None:
    assert values(CODE, here(NCCL_SOCKET_IFNAME="eth1"), net=net("eth0", "eth1", "eth10"))["others"] == "eth10"


def test_exact_lists_and_prefixes_are_meant() -> None:
    assert clear(CODE, here(NCCL_IB_HCA="=mlx5_1"), rdma=MANY)
    assert clear(CODE, here(NCCL_IB_HCA="mlx5"), rdma=MANY)
    assert clear(CODE, here(NCCL_IB_HCA="^mlx5_1"), rdma=MANY)


def test_eight_devices_have_no_longer_names() -> None:
    eight = rdma(*(f"mlx5_{n}" for n in range(8)))
    assert clear(CODE, here(NCCL_IB_HCA="mlx5_0,mlx5_1,mlx5_2,mlx5_3"), rdma=eight)


def test_all_that_are_selected_may_be_listed() -> None:
    assert clear(CODE, here(NCCL_IB_HCA="mlx5_1,mlx5_10,mlx5_11"), rdma=MANY)
