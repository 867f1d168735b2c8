"""Settings that are right: nothing is found.  False alarms are worse than nothing."""

from allready.judging.engine import judge
from allready.judging.registry import load
from allready.model import Severity
from allready.testing import fleet
from tests.cases import cases
from tests.rules.variables.made import net, rdma, script, software

CORRECT = [
    "NCCL_DEBUG=WARN",
    "NCCL_DEBUG=VERSION",
    "NCCL_SOCKET_IFNAME=eth0",
    "NCCL_SOCKET_IFNAME==eth0,eth1",
    "NCCL_SOCKET_IFNAME=^lo,docker",
    "NCCL_SOCKET_IFNAME=^docker,lo,virbr",
    "NCCL_SOCKET_IFNAME=eth",
    "NCCL_SOCKET_FAMILY=AF_INET",
    "NCCL_IB_HCA=mlx5",
    "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1",
    "NCCL_IB_HCA=^mlx5_1",
    "NCCL_IB_DISABLE=0",
    "NCCL_IB_TIMEOUT=22",
    "NCCL_IB_RETRY_CNT=7",
    "NCCL_IB_GID_INDEX=-1",
    "NCCL_IB_QPS_PER_CONNECTION=4",
    "NCCL_IB_TC=106",
    "NCCL_NET_GDR_LEVEL=PHB",
    "NCCL_NET_GDR_LEVEL=2",
    "NCCL_P2P_LEVEL=NVL",
    "NCCL_P2P_DISABLE=0",
    "NCCL_ALGO=Ring",
    "NCCL_ALGO=^NVLS",
    "NCCL_PROTO=^LL128",
    "NCCL_BUFFSIZE=8388608",
    "NCCL_NVLS_ENABLE=0",
    "NCCL_CUMEM_ENABLE=1",
    "NCCL_MIN_CTAS=16",
    "NCCL_NET_PLUGIN=none",
    "NCCL_CROSS_NIC=1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600",
    "TORCH_FR_BUFFER_SIZE=20000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    "TORCH_DISTRIBUTED_DEBUG=OFF",
    "TORCH_CPP_LOG_LEVEL=INFO",
    "GLOO_SOCKET_IFNAME=eth0",
    "TP_SOCKET_IFNAME=eth0",
    "PYTORCH_ALLOC_CONF=expandable_segments:True",
    "CUDA_VISIBLE_DEVICES=0,1",
    "CUDA_DEVICE_MAX_CONNECTIONS=1",
    "CUDA_DEVICE_ORDER=PCI_BUS_ID",
    "OMP_NUM_THREADS=8",
    "MASTER_ADDR=10.0.0.1",
    "MASTER_PORT=29500",
    "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true",
    "XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "JAX_COORDINATOR_ADDRESS=10.0.0.1:1234",
    "FI_PROVIDER=efa",
    "UCX_NET_DEVICES=mlx5_0:1",
    "PYTHONFAULTHANDLER=1",
    "NCCL_HOME=/usr/local/nccl",
    "HF_HOME=/data/hf",
    "WANDB_MODE=offline",
    "TOKENIZERS_PARALLELISM=false",
]


@cases("setting", CORRECT)
def test_nothing_is_found(setting: str) -> None:
    machine = fleet(
        1,
        settings=script(f"export {setting}", "torchrun --nproc-per-node 2 train.py"),
        net={0: net("eth0", "eth1")},
        rdma={0: rdma("mlx5_0", "mlx5_1")},
        software={0: software(torch="2.13.0+cu130", nccl="2.28.9", jax="0.10.2", jaxlib="0.10.2")},
    )
    findings, unchecked = judge(machine, [rule for rule in load().values() if rule.area == "variables"])
    assert [f.message for f in findings] == []
    assert unchecked == ()


def test_there_are_enough() -> None:
    assert len(CORRECT) >= 40
    assert Severity.INFO.weight == 0
