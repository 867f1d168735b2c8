"""Which variables must be equal on all nodes, which may differ, and how their values are compared."""

import re
import shlex
from collections.abc import Iterator, Mapping

from allready.judging.analysis import Analysis
from allready.judging.values import on_nodes, seen
from allready.model import Culprits, EnvFacts, Hit, Severity
from allready.variables import table
from allready.variables.versions import is_read

_MUST_AGREE = (
    r"NCCL_(ALGO|PROTO|NTHREADS|(LL_|LL128_)?BUFFSIZE|(MIN|MAX)_(NCHANNELS|NRINGS|CTAS|P2P_NCHANNELS)|NCHANNELS_PER_NET_PEER"
    r"|P2P_\w+|SHM_\w+|NET|NET_\w+|IB_DISABLE|NVLS_\w+|MNNVL|MNNVL_ENABLE|CUMEM_\w+|COLLNET_\w+|PXN_DISABLE|CROSS_NIC"
    r"|RUNTIME_CONNECT|SOCKET_FAMILY|SOCKET_MAGIC|COMM_ID|COMM_BLOCKING|OOB_NET_ENABLE|TUNER_PLUGIN|CHECK_MODE"
    r"|GRAPH_REGISTER|LOCAL_REGISTER|PAT_ENABLE|CHUNK_SIZE|CONNECT_ROUND_MAX_PEERS|ENV_PLUGIN"
    r"|LAUNCH_ORDER_IMPLICIT|WIN_ENABLE|GIN_ENABLE|COMM_SPLIT_SHARE_RESOURCES)"
    r"|TORCH_NCCL_\w+|TORCH_NCCL2_\w+|TORCH_DIST_USE_NCCL2|TORCH_DISTRIBUTED_(DEBUG|USE_TORCHCOMMS)"
    r"|TORCH_GLOO_LAZY_INIT|TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    r"|GLOO_(DEVICE_TRANSPORT|ENABLE_RANK_AS_SEQUENCE_NUMBER|ENABLE_STORE_V2_API)"
    r"|XLA_FLAGS|JAX_(ENABLE_X64|PLATFORMS|PLATFORM_NAME|CPU_COLLECTIVES_IMPLEMENTATION|DEFAULT_MATMUL_PRECISION"
    r"|ENABLE_RECOVERABILITY|COORDINATOR_ADDRESS|NUM_CPU_DEVICES|DEFAULT_PRNG_IMPL|THREEFRY_PARTITIONABLE)"
)

_MAY_DIFFER = (
    # names of this node's devices, interfaces, processors, files
    r"(NCCL|GLOO|TP|UCX|NVSHMEM)_SOCKET_IFNAME|NCCL_IB_HCA|NCCL_IB_GID_INDEX|NCCL_OOB_NET_IFNAME|NCCL_HOSTID|NCCL_PROXY_CPUSET"
    r"|NCCL_IB_ADDR_RANGE|NCCL_RAS_\w+|NCCL_(TOPO|GRAPH|DEBUG|CONF|TUNER_CONFIG|PROFILE)_(DUMP_)?FILE(_RANK)?|NCCL_DEBUG(_\w+)?"
    r"|NCCL_INSPECTOR_\w+|NCCL_PROFIL\w+|NCCL_MNNVL_(UUID|CLIQUE_ID)|NCCL_SET_THREAD_NAME"
    r"|(CUDA|NVIDIA|HIP|ROCR)_VISIBLE_DEVICES|UCX_NET_DEVICES|NVSHMEM_HCA_\w+|FI_\w+_IFACE|CUDA_(HOME|PATH|ROOT|DIR|CACHE_PATH|MPS_\w+)|CUDA_DEVICE_UUIDS?"
    r"|OMP_(NUM_THREADS|PLACES|PROC_BIND|THREAD_LIMIT)|[KG]MP_\w+|MKL_NUM_THREADS|NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME|LD_LIBRARY_PATH|LD_PRELOAD|PATH|PYTHONPATH|HOME|TMPDIR"
    r"|TORCH_HOME|TORCH_EXTENSIONS_DIR|TORCHINDUCTOR_CACHE_DIR|TORCH_NCCL_DEBUG_INFO_(TEMP|PIPE)_FILE|TORCH_FR_DUMP_TEMP_FILE"
    r"|TORCH_CUDA_ARCH_LIST|TORCH_(CPP|LOGS?)(_\w+)?|TORCH_SHOW_CPP_STACKTRACES|\w+_LOG_LEVEL|\w+_(DIR|PATH|FILE|CACHE|HOST|LOG)"
    # what the launcher gives to each node, judged by the rules about the job itself
    r"|(GROUP_|LOCAL_|ROLE_|NODE_|PET_NODE_)?RANK|(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)|PET_\w+|TORCHELASTIC_\w+"
    r"|JAX_(PROCESS_ID|PROCESS_INDEX|LOCAL_DEVICE_IDS|PARTITION_INDEX|SLICE_INDEX|COORDINATOR_BIND_ADDRESS"
    r"|CUDA_VISIBLE_DEVICES|COMPILATION_CACHE_DIR)"
)

_RECORDING = r"TORCH_NCCL_(TRACE_\w+|DUMP_\w+|EXTRA_DUMP_\w+|LOG_\w+|WAIT_TIMEOUT_DUMP_\w+|SHOW_\w+|CUDA_EVENT_CACHE)"


def severity_of(name: str) -> Severity | None:
    """How grave it is that nodes have different values of this variable; None when it means nothing."""
    row = table.load().get(name)
    if (row is not None and not is_read(row)) or re.fullmatch(_MAY_DIFFER, name):
        return None
    if re.fullmatch(_RECORDING, name):
        return Severity.WARNING
    return Severity.ERROR if re.fullmatch(_MUST_AGREE, name) else Severity.WARNING


def comparable(name: str, value: str) -> str:
    """The value without what makes no difference: outer blanks; in XLA_FLAGS order and where dumps are written."""
    value = value.strip()
    if name != "XLA_FLAGS":
        return value
    try:
        flags = shlex.split(value)
    except ValueError:  # an unclosed quote
        flags = value.split()
    return " ".join(sorted(f for f in flags if not f.startswith("--xla_dump_")))


def is_on(value: str | None) -> bool:
    """Whether NCCL and CUDA take this value of a switch for "on": they read a number, so that "true" means 0."""
    match = re.match(r"\s*([+-]?\d+)", value or "")
    return match is not None and int(match.group(1)) != 0


def set_hit(
    case: Analysis, env: Mapping[int, EnvFacts], name: str, texts: Mapping[int, str], **values: object
) -> Iterator[Hit]:
    """The hit of a rule about a variable that should not be set; nothing without nodes.

    Args:
        case: what is judged.
        env: all nodes; where all of them have it, none of them is a culprit.
        name: the variable.
        texts: node that has it -> evidence.
        values: of the message, besides name and nodes.
    """
    nodes = tuple(texts)
    if nodes:
        yield Hit(
            culprits=Culprits(nodes=nodes if len(nodes) < len(env) else (), variables=(name,)),
            values={"name": name, "nodes": on_nodes(case.world, nodes), **values},
            evidence=seen("environment", texts, most=8),
        )
