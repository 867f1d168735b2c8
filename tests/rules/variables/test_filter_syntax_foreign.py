from tests.cases import cases
from tests.rules.variables.made import clear, here, values

CODE = "VAR016"


@cases(
    "value, entry",
    [("^lo", "'^lo'"), ("=eth0", "'=eth0'"), ("eth0, eth1", "' eth1'"), ("eth0,,eth1", "''"), ("eth*", "'eth*'")],
)
def test_names_the_entry(value: str, entry: str) -> None:
    assert values(CODE, here(GLOO_SOCKET_IFNAME=value))["entry"] == entry


@cases("value", ["eth0", "eth0,eth1", "eth0,", "lo", ""])
def test_exact_names_are_right(value: str) -> None:
    assert clear(CODE, here(GLOO_SOCKET_IFNAME=value))


def test_tensorpipe_as_well() -> None:
    assert values(CODE, here(TP_SOCKET_IFNAME="^docker0"))["name"] == "TP_SOCKET_IFNAME"


def test_ucx_has_one_mark_only() -> None:
    assert values(CODE, here(UCX_NET_DEVICES="^=mlx5_0:1"))["entry"] == "'=mlx5_0:1'"
    assert clear(CODE, here(UCX_NET_DEVICES="^mlx5_0:1,mlx5_1:1"))


def test_nccl_knows_the_marks() -> None:
    assert clear(CODE, here(NCCL_SOCKET_IFNAME="^lo,docker"))
