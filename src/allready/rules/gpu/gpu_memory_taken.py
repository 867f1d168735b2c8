"""GPU001."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import GIB, MIB, size, used_gpus, wants_nccl
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Gpu,
    GpuFacts,
    Hit,
    LaunchFacts,
    PerNode,
    Severity,
    World,
)

_NOT_WORTH_SAYING_BYTES = 512 * MIB
_RESERVED_BYTES = GIB
"""What a driver may keep for itself (ECC, page tables): counted as used although no process has it."""


@Rule(
    code="GPU001",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.1",
    layer=Layer.READINESS,
    title="Other processes hold memory of the GPUs of this job",
    message="node {node}: {taken} of the memory of GPU {gpus} is held by other processes: {holders}",
    remedy="on node {node}: nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv; if they are left over "
    "from a dead job, end them (kill PID); else take other GPUs: --devices or CUDA_VISIBLE_DEVICES",
)
def gpu_memory_taken(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The memory of each GPU that a rank of this job will take, before the ranks start.  A warning above 1 GiB or 5 % of
    the memory (never for less than 512 MiB), an error above half of it.  Where NVML shows no processes, as inside a
    container, 1 GiB is left for the driver itself.
    ## Why it matters
    The job ends with "CUDA out of memory" on one rank, often only at the first large batch, and all other ranks wait
    for it.  A process that computes on the same GPU also makes this rank slow.
    ## Check by hand
    `nvidia-smi`; processes of other containers show up only outside, on the host.
    ## When it is harmless
    When the memory is enough for both, and the other process is known and idle.
    """
    for node, facts in gpu.items():
        if not wants_nccl(node, launch, gpu):
            continue
        used = set(used_gpus(launch[node], facts))
        taken = {g.index: (g, _taken_bytes(g)) for g in facts.gpus if g.index in used}
        bad = {i: (g, b) for i, (g, b) in taken.items() if _matters(g, b)}
        if not bad:
            continue
        named = [p for g, _ in bad.values() for p in g.processes]
        yield Hit(
            severity=Severity.ERROR if any(2 * b > g.memory_total_bytes for g, b in bad.values()) else Severity.WARNING,
            confidence=Confidence.CERTAIN if named else Confidence.LIKELY,
            culprits=Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "gpus": ", ".join(map(str, sorted(bad))),
                "taken": ", ".join(size(b) for _, (_, b) in sorted(bad.items())),
                "holders": ", ".join(f"pid {p.pid} ({p.user or '?'}, {p.command or '?'})" for p in named[:6])
                + (f", … +{len(named) - 6}" if len(named) > 6 else "")
                or "?",
            },
            evidence=tuple(
                Evidence(
                    source=f"NVML GPU {g.index}",
                    node_rank=node,
                    text=f"used {g.memory_used_bytes} of {g.memory_total_bytes} bytes"
                    + "".join(f"; pid {p.pid} {p.user} {p.command}: {p.used_bytes} bytes" for p in g.processes[:8]),
                )
                for _, (g, _) in sorted(bad.items())
            ),
        )


def _taken_bytes(gpu: Gpu) -> int:
    """What other processes hold: their own numbers, or the GPU's where NVML does not give them."""
    if gpu.processes and all(p.used_bytes is not None for p in gpu.processes):
        return sum(p.used_bytes or 0 for p in gpu.processes)
    return max(0, gpu.memory_used_bytes - _RESERVED_BYTES)


def _matters(gpu: Gpu, taken_bytes: int) -> bool:
    return taken_bytes > max(_NOT_WORTH_SAYING_BYTES, min(GIB, 0.05 * gpu.memory_total_bytes))
