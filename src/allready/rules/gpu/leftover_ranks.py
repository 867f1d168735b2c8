"""GPU009."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.values import listed, seen
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    GpuFacts,
    Hit,
    Leftover,
    PerNode,
    RemedyStep,
    Severity,
    UsageFacts,
    World,
)
from allready.units import size


@Rule(
    code="GPU009",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.2",
    layer=Layer.READINESS,
    title="Ranks whose launcher is gone still run",
    message="node {node}: ranks of an earlier job still run although their launcher is gone: {processes}"
    "[[; they hold {taken} of GPU memory]][[; they listen on {ports}]]",
    remedy=(
        RemedyStep(
            explanation="see what they are", where="node {node}", command="ps -o pid,ppid,user,lstart,args -p {pids}"
        ),
        RemedyStep(explanation="then end them", where="node {node}", command="{end}"),
    ),
)
def leftover_ranks(usage: PerNode[UsageFacts], world: World, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Processes with the variables that torch's launcher gives to its ranks and whose parent is init: the launcher has
    ended without them. A warning for those that NVML lists as holders of GPU memory, else information. Where the
    first process of a container may be the launcher itself, nothing is reported.
    ## Why it matters
    They keep GPU memory, ports and /dev/shm of a job that is over: the next job runs out of memory on these GPUs,
    meets a stale store, or is slow.
    ## Check by hand
    `ps -eo pid,ppid,user,lstart,args | awk '$2 == 1'` beside `nvidia-smi`.
    ## When it is harmless
    Helpers that a rank started and left to run (a logging service, TensorBoard) have its variables as well.
    """
    gpu = case.facts(GpuFacts)
    for node, facts in usage.items():
        held = {p.pid: p.used_bytes or 0 for g in gpu[node].gpus for p in g.processes} if node in gpu else {}
        holding = [one for one in facts.leftovers if one.pid in held]
        shown = holding or list(facts.leftovers)
        if shown:
            pids = [str(one.pid) for one in shown]
            yield Hit(
                severity=Severity.WARNING if holding else None,
                confidence=Confidence.LIKELY if holding else Confidence.POSSIBLE,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "processes": listed([_shown(one) for one in shown], 4),
                    "ports": ", ".join(str(port) for one in shown for port in one.ports) or "?",
                    "taken": size(sum(held[one.pid] for one in holding)) if holding else "?",
                    "pids": ",".join(pids),
                    "end": f"kill {' '.join(pids)}",
                },
                evidence=seen("/proc", {node: "; ".join(_shown(one) for one in shown[:8])}),
            )


def _shown(one: Leftover) -> str:
    known = (f"pid {one.pid}", f"rank {one.rank}", one.user or "", one.command or "")
    return f"{' '.join(filter(None, known))}" + (f" (since {one.started})" if one.started else "")
