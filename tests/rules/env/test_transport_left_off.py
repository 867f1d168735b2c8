import pytest

from allready.model import FactMissing, RdmaFacts
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.env.made import NO_GPU, gpus, launch, on_all, variables


@pytest.mark.parametrize(
    ("name", "hardware"),
    [
        ("NCCL_P2P_DISABLE", "2 x NVIDIA H200"),
        ("NCCL_SHM_DISABLE", "2 x NVIDIA H200"),
        ("NCCL_IB_DISABLE", "mlx5_0/1 InfiniBand"),
    ],
)
def test_warns_of_what_is_switched_off_and_names_what_is_there(name: str, hardware: str) -> None:
    [hit] = check("ENV010", fleet(4, env={1: variables(**{name: "1"})})).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((1,), (name,))
    assert hit.values["hardware"] == hardware


def test_blames_no_node_when_it_is_off_everywhere() -> None:
    [hit] = check("ENV010", fleet(2, env=on_all(2, NCCL_IB_DISABLE="1"))).hits
    assert hit.culprits.nodes == ()


@cases("value", ["0", "", "true", "no"])
def test_reads_the_switch_as_nccl_does(value: str) -> None:
    assert check("ENV010", fleet(2, env=on_all(2, NCCL_IB_DISABLE=value))).state == "clear"


def test_does_not_mind_infiniband_where_there_is_none() -> None:
    case = fleet(2, env=on_all(2, NCCL_IB_DISABLE="1"), rdma=dict.fromkeys((0, 1), RdmaFacts(ports=())))
    assert check("ENV010", case).state == "clear"


def test_does_not_mind_infiniband_on_one_node() -> None:
    assert check("ENV010", fleet(1, env=on_all(1, NCCL_IB_DISABLE="1"))).state == "clear"


def test_does_not_mind_p2p_with_one_gpu() -> None:
    one = {n: gpus(n, visible=(0,)) for n in range(2)}
    assert check("ENV010", fleet(2, env=on_all(2, NCCL_P2P_DISABLE="1"), gpu=one)).state == "clear"


def test_does_not_mind_a_job_without_nccl() -> None:
    gloo = {n: launch(n, backend="gloo") for n in range(2)}
    assert check("ENV010", fleet(2, env=on_all(2, NCCL_P2P_DISABLE="1"), launch=gloo)).state == "clear"
    none = dict.fromkeys((0, 1), NO_GPU)
    assert check("ENV010", fleet(2, env=on_all(2, NCCL_P2P_DISABLE="1"), gpu=none)).state == "clear"


def test_is_clear_when_nothing_is_switched_off() -> None:
    assert check("ENV010", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV010", fleet(2, env={1: FactMissing("not sent")})).unchecked == {1: "not sent"}
