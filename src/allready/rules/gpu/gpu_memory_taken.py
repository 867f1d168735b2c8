from collections.abc import Iterator

from allready import model
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import listed, used_gpus, wants_nccl
from allready.units import GIB, MIB, size

_MIN_BYTES = 512 * MIB
_RESERVED_BYTES = GIB
"""What a driver may keep for itself (ECC, page tables): counted as used although no process has it."""


@Rule(
    code="GPU001",
    severity=model.Severity.WARNING,
    fault_class=model.FaultClass.ENV_LIMIT,
    layer=Layer.READINESS,
    title="Other processes use memory of the job's GPUs",
    message="node {node}: other processes hold {taken} of the memory of GPU {gpus}[[: {holders}]]",
    remedy=(
        model.RemedyStep(
            explanation="list them; if they are left over from a dead job, end them",
            where="node {node}",
            command="nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv",
        ),
        model.RemedyStep(explanation="else use other GPUs: --devices or CUDA_VISIBLE_DEVICES", where="node {node}"),
    ),
)
def gpu_memory_taken(
    gpu: model.PerNode[model.GpuFacts], launch: model.PerNode[model.LaunchFacts], world: model.World
) -> Iterator[model.Hit]:
    """
    ## What it checks
    The memory of each GPU that a rank of this job will use, before the ranks start. A warning above 1 GiB or 5 % of the
    memory (never for less than 512 MiB), an error above half of it. Where NVML shows no processes, as inside a
    container, 1 GiB is left for the driver itself. `ppid 1` marks a process whose launcher and whose session's leader
    have ended, as ranks of a dead job.
    ## Why it matters
    The job ends with "CUDA out of memory" on one rank, often only at the first large batch, and all other ranks wait
    for it. A process that computes on the same GPU also makes this rank slow.
    ## Check by hand
    `nvidia-smi`; processes of other containers show up only outside, on the host.
    ## When it is harmless
    When the memory is enough for both, and the other process is known and idle.
    """
    for node, facts in gpu.items():
        if not wants_nccl(node, launch, gpu):
            continue
        used = set(used_gpus(launch[node], facts))
        bad = sorted(
            (g.index, g, taken)
            for g in facts.gpus
            if g.index in used and (taken := _taken_bytes(g)) > max(_MIN_BYTES, min(GIB, 0.05 * g.memory_total_bytes))
        )
        if not bad:
            continue
        holders = [p for _, g, _ in bad for p in g.processes]
        is_grave = any(2 * taken > g.memory_total_bytes for _, g, taken in bad)
        yield model.Hit(
            severity=model.Severity.ERROR if is_grave else model.Severity.WARNING,
            confidence=model.Confidence.CERTAIN if holders else model.Confidence.LIKELY,
            culprits=model.Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "gpus": ", ".join(str(index) for index, _, _ in bad),
                "taken": ", ".join(size(taken) for _, _, taken in bad),
                "holders": listed([_shown(p) for p in holders], 6) or "?",
            },
            evidence=tuple(
                stated(
                    f"NVML GPU {index}",
                    "used {used} of {all}[[; {holders}]]",
                    node_rank=node,
                    used=size(g.memory_used_bytes),
                    all=size(g.memory_total_bytes),
                    holders="; ".join(
                        f"pid {p.pid} {p.user} {p.command}: {size(p.used_bytes or 0)}" for p in g.processes[:8]
                    )
                    or None,
                )
                for index, g, _ in bad
            ),
        )


def _shown(process: model.GpuProcess) -> str:
    """With ps's word for one whose launcher has ended."""
    orphan = ", ppid 1" if process.is_orphan else ""
    return f"pid {process.pid} ({process.user or '?'}, {process.command or '?'}{orphan})"


def _taken_bytes(gpu: model.Gpu) -> int:
    """What other processes hold: their own numbers, or the GPU's where NVML does not give them."""
    if gpu.processes and all(p.used_bytes is not None for p in gpu.processes):
        return sum(p.used_bytes or 0 for p in gpu.processes)
    return max(0, gpu.memory_used_bytes - _RESERVED_BYTES)
