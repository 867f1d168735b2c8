"""ENV007."""

from collections.abc import Iterator

from allready.model import Culprits, EnvFacts, Evidence, FaultClass, Hit, PerNode, Severity, Split
from allready.rules.env._split import brief
from allready.rules.registry import Rule

_TIMEOUT = "torch.distributed.init_process_group(timeout=...)"

FOLK = {
    "NCCL_TIMEOUT": _TIMEOUT,
    "NCCL_TIMEOUT_MS": _TIMEOUT,
    "NCCL_TIMEOUT_SECONDS": _TIMEOUT,
    "TORCH_NCCL_TIMEOUT": _TIMEOUT,
    "TORCH_DISTRIBUTED_TIMEOUT": _TIMEOUT,
    "GLOO_TIMEOUT": _TIMEOUT,
    "NCCL_SOCKET_TIMEOUT": "NCCL_SOCKET_RETRY_CNT, NCCL_SOCKET_RETRY_SLEEP_MSEC",
    "NCCL_CONNECT_TIMEOUT": "NCCL_SOCKET_RETRY_CNT, NCCL_SOCKET_RETRY_SLEEP_MSEC",
    "NCCL_IFNAME": "NCCL_SOCKET_IFNAME",
    "NCCL_DEBUG_LEVEL": "NCCL_DEBUG",
    "NCCL_LOG_LEVEL": "NCCL_DEBUG",
    "NCCL_IB_ENABLE": "NCCL_IB_DISABLE",
    "NCCL_P2P_ENABLE": "NCCL_P2P_DISABLE",
    "NCCL_SHM_ENABLE": "NCCL_SHM_DISABLE",
    "NCCL_NVLS_DISABLE": "NCCL_NVLS_ENABLE=0",
    "NCCL_MNNVL_DISABLE": "NCCL_MNNVL_ENABLE=0",
    "NCCL_TREE_DISABLE": "NCCL_ALGO=^Tree",
    "NCCL_GDR_LEVEL": "NCCL_NET_GDR_LEVEL",
    "NCCL_IB_GDR_LEVEL": "NCCL_NET_GDR_LEVEL",
    "NCCL_IB_CUDA_SUPPORT": "NCCL_NET_GDR_LEVEL",
    "NCCL_IB_GDR_DISABLE": "NCCL_NET_GDR_LEVEL=LOC",
    "NCCL_RAS_PORT": "NCCL_RAS_ADDR=HOST:PORT",
    "NCCL_MAX_P2P_PEERS": "NCCL_P2P_MAX_PEERS",
    "NCCL_MAX_CGA_CLUSTER_SIZE": "NCCL_CGA_CLUSTER_SIZE",
    "NCCL_TREE_THRESHOLD": "NCCL_ALGO",
    "NCCL_LL_THRESHOLD": "NCCL_PROTO",
    "NCCL_RINGS": "NCCL_GRAPH_FILE",
    "TORCH_NCCL_ENABLE_HEALTH_CHECK": "TORCH_ENABLE_NCCL_HEALTH_CHECK",
    "JAX_HEARTBEAT_TIMEOUT_SECONDS": "jax.distributed.initialize(heartbeat_timeout_seconds=...)",
    "JAX_INITIALIZATION_TIMEOUT": "jax.distributed.initialize(initialization_timeout=...)",
}
"""Names that guides pass on and no current release reads -> what does what they promise."""


@Rule(
    code="ENV007",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    depth=60,
    title="A variable that nothing reads",
    message="{name} is set ({split}), but neither NCCL nor PyTorch, Gloo or JAX reads a variable of that name",
    remedy="unset {name}; what does it: {instead}",
)
def variable_unknown(env: PerNode[EnvFacts]) -> Iterator[Hit]:
    """
    ## What it checks
    Names that are passed on from guide to guide, and that no current release of NCCL, PyTorch, Gloo or JAX reads.
    ## Why it matters
    Who sets NCCL_TIMEOUT believes that the time-out was raised, and the job ends after the old one. NCCL has no
    time-out for collectives at all; PyTorch's is an argument.
    ## Check by hand
    `strings` on libnccl.so and libtorch_cuda.so, followed by `grep -w NAME`, prints nothing.
    ## When it is harmless
    When your own script reads it.
    """
    found: dict[str, dict[int, str]] = {}
    for node, facts in env.items():
        for name in facts.variables.keys() & FOLK.keys():
            found.setdefault(name, {})[node] = facts.variables[name]
    for name, values in sorted(found.items()):
        yield Hit(
            culprits=Culprits(variables=(name,)),
            values={"name": name, "split": brief(Split.by(values)), "instead": FOLK[name]},
            evidence=tuple(
                Evidence(source="environment", text=f"{name}={values[n][:200]}", node_rank=n) for n in list(values)[:4]
            ),
        )
