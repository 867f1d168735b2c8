from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.signs import Sign
from allready.judging.values import nccl_nodes
from allready.model import EnvFacts, FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, RdmaFacts, RemedyStep, Severity
from allready.rules.env._variables import is_on, set_hit

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
    ten to twenty times slower.
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
