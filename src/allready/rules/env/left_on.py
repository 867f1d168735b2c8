"""Variables that a search for a fault needed and that were left on."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.signs import Sign
from allready.judging.values import nccl_nodes
from allready.model import EnvFacts, FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, RdmaFacts, RemedyStep, Severity
from allready.rules.env._variables import is_on, set_hit

BLOCKING = "CUDA_LAUNCH_BLOCKING"


@Rule(
    code="ENV008",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    unless=(Sign.LINTED,),
    title="CUDA_LAUNCH_BLOCKING is set",
    message="CUDA_LAUNCH_BLOCKING={value} on node {nodes}: every kernel launch blocks until the kernel ends, so "
    "computation and communication no longer overlap",
    remedy=RemedyStep(
        explanation="unset it, unless you are searching for the kernel that fails",
        where="node {nodes}",
        command="unset CUDA_LAUNCH_BLOCKING",
    ),
)
def launch_blocking_left_on(env: PerNode[EnvFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Whether CUDA_LAUNCH_BLOCKING is set on a node with GPUs.
    ## Why it matters
    It is a debugging aid. Training with it is slower, often by far, and with several NCCL
    communicators in one process it can deadlock: a collective waits for another that cannot be launched.
    ## Check by hand
    `echo "$CUDA_LAUNCH_BLOCKING"`
    ## When it is harmless
    While you are searching for the kernel behind an asynchronous CUDA error.
    """
    gpu = case.facts(GpuFacts)
    on = {
        n: f.variables[BLOCKING]
        for n, f in env.items()
        if is_on(f.variables.get(BLOCKING)) and (n not in gpu or gpu[n].visible)
    }
    texts = {n: f"{BLOCKING}={value}" for n, value in on.items()}
    yield from set_hit(case, env, BLOCKING, texts, value=next(iter(on.values()), "").strip())


DEBUG = "TORCH_DISTRIBUTED_DEBUG"


@Rule(
    code="ENV009",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    unless=(Sign.LINTED,),
    title="TORCH_DISTRIBUTED_DEBUG=DETAIL is set",
    message="TORCH_DISTRIBUTED_DEBUG=DETAIL on node {nodes}: before each collective all ranks compare their calls over "
    "Gloo",
    remedy=RemedyStep(
        explanation="unset it (or set INFO), unless you are debugging a desync",
        where="node {nodes}",
        command="unset TORCH_DISTRIBUTED_DEBUG",
    ),
)
def debug_detail_left_on(env: PerNode[EnvFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Whether TORCH_DISTRIBUTED_DEBUG is DETAIL.
    ## Why it matters
    Every collective then costs a second one over Gloo and the CPU, which slows steps with many small collectives
    several times, and needs Gloo to work between all nodes even if the job itself uses only NCCL.
    ## Check by hand
    `echo "$TORCH_DISTRIBUTED_DEBUG"`
    ## When it is harmless
    While you are debugging ranks that issue different collectives: that is its purpose.
    """
    on = (n for n, f in env.items() if f.variables.get(DEBUG, "").strip().upper() == "DETAIL")
    yield from set_hit(case, env, DEBUG, dict.fromkeys(on, f"{DEBUG}=DETAIL"))


INSIDE_A_NODE = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
INFINIBAND = "NCCL_IB_DISABLE"


@Rule(
    code="ENV010",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    unless=(Sign.LINTED,),
    title="A fast transport of NCCL is disabled",
    message="{name}={value} on node {nodes} disables a transport that this hardware has ({hardware})",
    remedy=(
        RemedyStep(explanation="unset it", where="node {nodes}", command="unset {name}"),
        RemedyStep(
            explanation="and compare; if the job works only with it, the transport is broken and needs the fix",
            where="every node",
            command="allready check --isolate",
        ),
    ),
)
def transport_left_off(env: PerNode[EnvFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL_P2P_DISABLE and NCCL_SHM_DISABLE on nodes where the job uses several GPUs, and NCCL_IB_DISABLE on nodes of a
    job on several nodes that have an ACTIVE InfiniBand or RoCE port. Only for jobs that use NCCL.
    ## Why it matters
    These are set to work around a fault and then stay. Without P2P, GPUs of one node communicate through host memory (a
    tenth of NVLink's bandwidth or less); without SHM too, through the network card; without InfiniBand, NCCL uses TCP,
    far slower.
    ## Check by hand
    `env | grep -E "NCCL_(P2P|SHM|IB)_DISABLE"`, /etc/nccl.conf and ~/.nccl.conf; then `nvidia-smi topo -m`.
    ## When it is harmless
    When P2P is known to be broken on this board (ACS, IOMMU), or the InfiniBand ports are for storage only.
    """
    gpu, rdma = case.facts(GpuFacts), case.facts(RdmaFacts)
    users = nccl_nodes(env, case.facts(LaunchFacts), gpu)
    for name in (*INSIDE_A_NODE, INFINIBAND):
        on = {n: f.variables[name].strip() for n, f in env.items() if n in users and is_on(f.variables.get(name))}
        if name == INFINIBAND:
            hardware = {n: _infiniband(rdma[n]) for n in on if n in rdma and case.world.num_nodes > 1}
        else:
            hardware = {n: _gpus(gpu[n]) for n in on if n in gpu}
        texts = {n: f"{name}={value}; {hardware[n]}" for n, value in on.items() if hardware.get(n)}
        first = next(iter(texts), None)
        if first is not None:
            yield from set_hit(case, env, name, texts, value=on[first], hardware=hardware[first])


def _gpus(facts: GpuFacts) -> str:
    usable = [g.name for g in facts.gpus if g.index in facts.visible]
    return f"{len(usable)} x {usable[0]}" if len(usable) > 1 else ""


def _infiniband(facts: RdmaFacts) -> str:
    active = [f"{p.device}/{p.port} {p.link_layer}" for p in facts.ports if p.state == "ACTIVE"]
    return ", ".join(active[:2]) + (", …" if len(active) > 2 else "")
