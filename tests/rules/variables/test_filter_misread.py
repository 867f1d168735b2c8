from tests.cases import cases
from tests.rules.variables.made import clear, here, software, values

CODE = "VAR015"


@cases(
    "value, entry, example",
    [
        ("eth0, eth1", "' eth1'", "eth0,eth1"),
        ("^lo,^docker0", "'^docker0'", "^lo,docker0"),
        ("=^eth0", "'=^'", "^=eth0"),
        ("lo,=eth0", "'=eth0'", "=lo,eth0"),
        ("eth*", "'eth*'", "eth"),
        ("^docker?,veth[0-9]", "'docker?'", "^docker,veth"),
    ],
)
def test_says_what_is_taken_literally(value: str, entry: str, example: str) -> None:
    found = values(CODE, here(NCCL_SOCKET_IFNAME=value))
    assert (found["entry"], found["example"]) == (entry, example)


def test_a_port_must_be_a_number() -> None:
    found = values(CODE, here(NCCL_IB_HCA="mlx5_0:one,mlx5_1:1"))
    assert (found["entry"], found["example"]) == ("'mlx5_0:one'", "mlx5_0,mlx5_1:1")


@cases("value", ["eth0", "eth", "^lo,docker", "=eth0,eth1", "^=eth0", "ib0,ib1,", "bond0.100", "enp1s0f0np0", ""])
def test_filters_that_are_read_as_meant(value: str) -> None:
    assert clear(CODE, here(NCCL_SOCKET_IFNAME=value))


@cases("value", ["mlx5_0", "=mlx5_0:1,mlx5_1:1", "^mlx5_bond", "mlx5"])
def test_devices_with_ports(value: str) -> None:
    assert clear(CODE, here(NCCL_IB_HCA=value))


@cases("value", ["mlx5_0:1:2:0:4", ":1", "mlx5_0:1:x", "mlx5_0,:1"])
def test_what_is_no_device_with_port_rail_and_plane(value: str) -> None:
    assert values(CODE, here(NCCL_IB_HCA=value))


def test_a_rail_is_read_since_nccl_2_30() -> None:
    old, new = (software(nccl=version) for version in ("2.29.3", "2.30.4"))
    assert values(CODE, here(NCCL_IB_HCA="=mlx5_0:1:2"), software=old)["example"] == "=mlx5_0:1"
    assert clear(CODE, here(NCCL_IB_HCA="=mlx5_0:1:2"), software=new)
    assert values(CODE, here(NCCL_SOCKET_IFNAME="eth0:1:2"), software=new), "an interface has neither"
