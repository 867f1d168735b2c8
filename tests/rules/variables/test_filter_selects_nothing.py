from allready.model import Confidence, RdmaFacts, Severity
from tests.cases import cases
from tests.rules.variables.made import clear, here, hits, net, rdma, script, settings, values

CODE = "VAR017"
TWO = net("eth0", "eth1")


@cases("value", ["ib0", "=eth", "eth2", "^eth,lo", "bond0,ib0"])
def test_interfaces_that_are_not_here(value: str) -> None:
    [hit] = hits(CODE, here(NCCL_SOCKET_IFNAME=value), net=TWO)
    assert hit.values["there"] == "lo, eth0, eth1"
    assert (hit.severity, hit.confidence) == (None, Confidence.CERTAIN)


@cases("value", ["eth0", "eth", "^lo", "ib0,eth0", "=eth1", ""])
def test_interfaces_that_are(value: str) -> None:
    assert clear(CODE, here(NCCL_SOCKET_IFNAME=value), net=TWO)


def test_gloo_takes_exact_names_only() -> None:
    assert values(CODE, here(GLOO_SOCKET_IFNAME="eth"), net=TWO)["name"] == "GLOO_SOCKET_IFNAME"
    assert clear(CODE, here(GLOO_SOCKET_IFNAME="eth1"), net=TWO)


def test_devices_and_their_ports() -> None:
    two = rdma("mlx5_0", "mlx5_1")
    [hit] = hits(CODE, here(NCCL_IB_HCA="mlx4"), rdma=two)
    assert (hit.severity, hit.values["there"]) == (Severity.ERROR, "mlx5_0:1, mlx5_1:1")
    assert hits(CODE, here(NCCL_IB_HCA="=mlx5_0:2"), rdma=two)
    assert clear(CODE, here(NCCL_IB_HCA="=mlx5_0:1"), rdma=two)
    assert clear(CODE, here(NCCL_IB_HCA="mlx5"), rdma=two)


def test_without_any_device_the_filter_changes_nothing() -> None:
    assert clear(CODE, here(NCCL_IB_HCA="mlx5"), rdma=RdmaFacts(ports=()))
    assert clear(CODE, here(NCCL_IB_HCA="mlx5_0"), rdma=rdma("mlx5_0", state="DOWN"))


def test_a_file_may_be_for_another_machine() -> None:
    [hit] = hits(CODE, script("export NCCL_SOCKET_IFNAME=ib0"), net=TWO)
    assert hit.confidence is Confidence.LIKELY
    batch = ("job.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\nexport NCCL_SOCKET_IFNAME=ib0\n")
    assert clear(CODE, settings(batch), net=TWO)
    assert hits(CODE, settings(batch, is_here=True), net=TWO)
    assert clear(CODE, script("export NCCL_SOCKET_IFNAME=ib0", is_here=False), net=TWO)


def test_ucx_has_names_of_both_kinds() -> None:
    machine = {"net": TWO, "rdma": rdma("mlx5_0")}
    assert values(CODE, here(UCX_NET_DEVICES="mlx5_3:1"), **machine)["there"] == "mlx5_0:1, lo, eth0, eth1"
    assert clear(CODE, here(UCX_NET_DEVICES="mlx5_0:1,eth0"), **machine)
    assert clear(CODE, here(UCX_NET_DEVICES="all"), **machine)
