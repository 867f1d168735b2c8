from tests.cases import cases
from tests.rules.variables.made import clear, here, settings, values

CODE = "VAR014"


@cases(
    "name, value",
    [
        ("NCCL_COMM_ID", "10.0.0.1"),
        ("MASTER_ADDR", "http://node0"),
        ("NCCL_IB_ADDR_RANGE", "10.0.0"),
        ("GOMP_CPU_AFFINITY", "all of them"),
        ("CUDA_VISIBLE_DEVICES", "0;1"),
        ("NCCL_TOPO_FILE", "~/topo.xml"),
    ],
)
def test_values_that_are_not_of_their_form(name: str, value: str) -> None:
    assert values(CODE, here(**{name: value}))["name"] == name


@cases(
    "name, value",
    [
        ("NCCL_COMM_ID", "10.0.0.1:29500"),
        ("NCCL_COMM_ID", "[fe80::1]:29500"),
        ("MASTER_ADDR", "node0.cluster"),
        ("MASTER_ADDR", "fd00::1"),
        ("NCCL_IB_ADDR_RANGE", "10.0.0.0/16"),
        ("GOMP_CPU_AFFINITY", "0-7"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("CUDA_VISIBLE_DEVICES", "GPU-3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
        ("CUDA_VISIBLE_DEVICES", "-1"),
        ("CUDA_VISIBLE_DEVICES", ""),
        ("NCCL_TOPO_FILE", "/etc/topo.xml"),
    ],
)
def test_values_that_are(name: str, value: str) -> None:
    assert clear(CODE, here(**{name: value}))


def test_quotes_that_stay() -> None:
    found = values(CODE, settings(("nccl.conf", 'NCCL_SOCKET_IFNAME="eth0"\n')))
    assert (found["part"], found["better"]) == ('"eth0"', "eth0")


def test_quotes_that_a_shell_takes_off() -> None:
    assert clear(CODE, settings(("run.sh", 'export NCCL_SOCKET_IFNAME="eth0"\n')))
