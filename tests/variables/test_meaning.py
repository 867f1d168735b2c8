import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.model import GpuFacts, NetFacts, RdmaFacts
from allready.text.ui import ui
from allready.variables import table
from allready.variables.here import Here
from allready.variables.meaning import Meaning, meaning
from tests.cases import cases
from tests.fleets import healthy_node
from tests.rules.variables.made import interface, net, rdma

NODE = healthy_node(0, 1)
assert isinstance(NODE.net, NetFacts)
assert isinstance(NODE.rdma, RdmaFacts)
assert isinstance(NODE.gpu, GpuFacts)
HERE = Here(net=net("eth0", "eth1", "docker0"), rdma=rdma("mlx5_0", "mlx5_1"), gpu=NODE.gpu)


def said(name: str, value: str, here: Here = HERE) -> dict[str, object]:
    """Key -> values of the sentences."""
    return {m.key: dict(m.values) for m in meaning(table.load()[name], value, here)}


def test_a_filter_of_interfaces() -> None:
    found = said("NCCL_SOCKET_IFNAME", "^lo,docker")
    assert found["selects"] == {"names": "eth0, eth1"}
    assert found["leaves_out"] == {"names": "lo, docker0"}
    assert found["first"] == {"name": "eth0"}
    assert said("NCCL_SOCKET_IFNAME", "ib")["selects_nothing"] == {"there": "lo, eth0, eth1, docker0"}


def test_ipv4_comes_first() -> None:
    six = NetFacts(interfaces=(interface("eth0", "fd00::1/64"), interface("eth1", "10.0.0.1/24")))
    assert said("NCCL_SOCKET_IFNAME", "eth", replace(HERE, net=six))["first"] == {"name": "eth1"}


def test_gloo() -> None:
    assert said("GLOO_SOCKET_IFNAME", "eth0") == {"exact_names": {"names": "eth0"}}
    assert said("GLOO_SOCKET_IFNAME", "^lo")["no_interface"]["name"] == "'^lo'"  # type: ignore[index]


def test_devices() -> None:
    assert said("NCCL_IB_HCA", "=mlx5_1:1")["selects"] == {"names": "mlx5_1:1"}
    assert "no_rdma" in said("NCCL_IB_HCA", "mlx5", Here(rdma=RdmaFacts(ports=())))
    assert "not_known_here" in said("NCCL_IB_HCA", "mlx5", Here())


@cases(
    "name, value, key",
    [
        ("NCCL_IB_DISABLE", "1", "on"),
        ("NCCL_IB_DISABLE", "0", "off"),
        ("NCCL_TIMEOUT", "1800", "unread"),
        ("NCCL_IB_DISABLE", "true", "problem_read_as_zero"),
        ("NCCL_IB_DISABLE", "", "empty"),
        ("TORCH_NCCL_BLOCKING_WAIT", "on", "problem_stops"),
        ("NCCL_BUFFSIZE", "8388608", "size"),
        ("NCCL_IB_TIMEOUT", "22", "ack_timer"),
        ("NCCL_IB_TIMEOUT", "0", "for_ever"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "600", "number_of"),
        ("NCCL_DEBUG", "INFO", "debug"),
        ("NCCL_DEBUG_SUBSYS", "^COLL", "all_but"),
        ("NCCL_DEBUG_FILE", "/tmp/%h.%p", "log_file"),
        ("NCCL_IB_GID_INDEX", "-1", "gid_automatic"),
        ("CUDA_VISIBLE_DEVICES", "1,0", "gpus"),
        ("CUDA_VISIBLE_DEVICES", "77", "no_gpu"),
        ("XLA_FLAGS", "--xla_dump_to=/tmp", "flag"),
        ("UCX_NET_DEVICES", "mlx5_0:1", "selects"),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:True", "text"),
    ],
)
def test_each_kind_of_value(name: str, value: str, key: str) -> None:
    assert key in said(name, value)


def test_numbers_are_worked_out() -> None:
    assert said("NCCL_IB_TIMEOUT", "22")["ack_timer"] == {"one": "17.2", "retries": 7, "all": "120"}
    assert said("NCCL_BUFFSIZE", "8388608")["size"] == {"number": 8388608, "size": "8 MiB"}
    assert said("CUDA_VISIBLE_DEVICES", "1,0")["gpus"]["gpus"].startswith("1 (")  # type: ignore[index]


@pytest.mark.thorough
@given(st.sampled_from(sorted(table.load())), st.text(max_size=40))
@settings(max_examples=600, deadline=None)
def test_any_value_has_sentences_in_both_languages(name: str, value: str) -> None:
    for meant in meaning(table.load()[name], value, HERE):
        assert isinstance(meant, Meaning)
        for language in ("en", "zh"):
            assert ui(f"env.means_{meant.key}", language, **meant.values)
