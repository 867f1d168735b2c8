"""Settings that are right: nothing is found.  False alarms are worse than nothing."""

from pathlib import Path

from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.model import Severity
from tests.cases import cases
from tests.fleets import fleet
from tests.rules.variables.made import net, rdma, script, settings, software

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
    "TORCH_CPP_LOG_LEVEL=error",
    "TORCH_DISTRIBUTED_DEBUG=off",
    "NCCL_DEBUG=warn",
    "CUDA_MODULE_LOADING=lazy",
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
    "FI_EFA_USE_DEVICE_RDMA=true",
    "FI_EFA_FORK_SAFE=on",
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
    findings, unchecked = judge(machine, load_area("variables"))
    assert [f.message for f in findings] == []
    assert unchecked == ()


CONTAINER = """\
NVIDIA_VISIBLE_DEVICES=0
NV_LIBNCCL_DEV_PACKAGE=libnccl-dev=2.28.3-1+cuda13.0
NVIDIA_REQUIRE_CUDA=cuda>=13.0 brand=unknown,driver>=535,driver<536 brand=grid,driver>=535,driver<536
TORCH_CUDA_ARCH_LIST=9.0a
NCCL_VERSION=2.28.3-1
NVIDIA_DRIVER_CAPABILITIES=compute,graphics,utility
NVIDIA_PRODUCT_NAME=CUDA
CUDA_VERSION=13.0.2-1
CUDAHOSTCXX=/opt/gcc/bin/g++
CUDA_HOME=/usr/local/cuda
"""
"""From a container of CUDA 13 on a machine with an H200."""
CLOUDS = """\
export FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA=1 FI_EFA_FORK_SAFE=1 RDMAV_FORK_SAFE=1
export NCCL_SOCKET_IFNAME=^docker,lo,veth NCCL_TUNER_PLUGIN=/opt/aws-ofi-nccl/lib/libnccl-ofi-tuner.so
export NCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml UCX_TLS=rc UCX_NET_DEVICES=mlx5_ib0:1 NCCL_IB_PCI_RELAXED_ORDERING=1
export SHARP_COLL_ENABLE_SAT=1 OMPI_MCA_coll_hcoll_enable=0 NCCL_FASTRAK_CTRL_DEV=enp0s12 NCCL_FASTRAK_NUM_FLOWS=2
export NCCL_ALGO=Ring,Tree NCCL_PROTO=Simple,LL128 NCCL_P2P_NET_CHUNKSIZE=524288 NCCL_NET_GDR_LEVEL=PIX
export CUDA_DEVICE_MAX_CONNECTIONS=1 NVTE_FUSED_ATTN=1 NCCL_CTA_POLICY=1 TRITON_CACHE_DIR=/tmp/triton
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK/8)) NNODES=$SLURM_NNODES TORCH_CUDA_ARCH_LIST="8.0;9.0"
export TORCHELASTIC_ERROR_FILE=/tmp/error TORCH_LOGS=recompiles CUDA_MODULE_LOADING=LAZY NCCL_NTHREADS=512
srun --export=ALL torchrun --nnodes $NNODES --nproc-per-node 8 train.py
"""
"""Settings as providers and large training scripts have them."""


@cases("name, text", [("environment.txt", CONTAINER), ("train.sh", CLOUDS)])
def test_nothing_is_found_in_what_real_machines_and_scripts_have(name: str, text: str) -> None:
    machine = fleet(
        1,
        settings=settings((name, text), missing_files=frozenset({"/opt/microsoft/ndv5-topo.xml"}), cloud="oci"),
        net={0: net("eth0")},
        rdma={0: rdma("mlx5_0")},
        software={0: software(torch="2.13.0+cu130", nccl="2.28.9")},
    )
    findings, _ = judge(machine, load_area("variables"))
    assert [f.message for f in findings] == []


PUBLISHED = Path(__file__).resolve().parents[1] / "fixtures" / "variables" / "correct.sh"


@cases("torch, nccl", [("2.13.0", "2.28.9"), ("2.14.1", "2.30.7")])
def test_nothing_is_found_in_what_documents_of_libraries_and_providers_have(torch: str, nccl: str) -> None:
    """Each line for itself: a file would let one stand in for another, or contradict it."""
    wrong = {}
    for line in PUBLISHED.read_text().splitlines():
        if not line.startswith("export"):
            continue
        machine = fleet(
            1,
            settings=script("export NCCL_DEBUG=WARN", line, "torchrun train.py", is_here=False),
            software={0: software(torch=torch, nccl=nccl, jax="0.10.2", jaxlib="0.10.2")},
        )
        findings, _ = judge(machine, load_area("variables"))
        if findings:
            wrong[line] = [f.message for f in findings]
    assert wrong == {}


def test_there_are_enough() -> None:
    assert sum(line.startswith("export") for line in PUBLISHED.read_text().splitlines()) >= 160
    assert len(CORRECT) >= 40
    assert Severity.INFO.weight == 0
