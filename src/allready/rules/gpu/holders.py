"""What holds a GPU that the job is to have: other processes, ended ones, a mode."""

from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import listed, seen, used_gpus, wants_nccl
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    GpuFacts,
    Hit,
    HostFacts,
    LaunchFacts,
    Leftover,
    PerNode,
    RemedyStep,
    Severity,
    UsageFacts,
    World,
)
from allready.units import GIB, MIB, size


@Rule(
    code="GPU009",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_LIMIT,
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
                    "processes": listed([_line_of(one) for one in shown], 4),
                    "ports": ", ".join(str(port) for one in shown for port in one.ports) or None,
                    "taken": size(sum(held[one.pid] for one in holding)) if holding else None,
                    "pids": ",".join(pids),
                    "end": f"kill {' '.join(pids)}",
                },
                evidence=seen("/proc", {node: "; ".join(_line_of(one) for one in shown[:8])}),
            )


def _line_of(one: Leftover) -> str:
    known = (f"pid {one.pid}", f"rank {one.rank}" if one.rank else "", one.user or "", one.command or "")
    return f"{' '.join(filter(None, known))}" + (f" (since {one.started})" if one.started else "")


@Rule(
    code="GPU020",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.MACHINE,
    title="A process that has ended still holds a GPU",
    message="node {node}: GPU {gpus} is still held by processes that have ended: {processes}[[; {taken} of memory]]",
    remedy=(
        RemedyStep(
            explanation="see the threads that have not ended, and what they wait for",
            where="node {node}",
            command="ps -L -o pid,tid,stat,wchan:32,comm -p {pids}",
        ),
        RemedyStep(
            explanation="a thread in state D waits for the driver: look for an Xid; if it stays, restart the machine",
            where="node {node}",
            command="sudo dmesg | grep -i -e xid -e nvrm | tail",
        ),
    ),
)
def zombie_holds_gpu(gpu: PerNode[GpuFacts], host: PerNode[HostFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a process that NVML lists as a holder of a GPU is a zombie: its first thread has ended, another one has
    not. Inside a container NVML may give numbers of other processes, and nothing is reported.
    ## Why it matters
    `kill -9` does not help, for the process is dead already; a thread of it is stuck in the driver. The memory stays
    taken, and the next job on this GPU runs out of memory or hangs at its first call.
    ## Check by hand
    `nvidia-smi --query-compute-apps=pid,used_memory --format=csv`, then `ps -o pid,stat,comm -p PID` shows `Z`.
    ## When it is harmless
    For seconds, while a large process is taken down.
    """
    for node, facts in gpu.items():
        machine = host.get(node)
        if machine is None or machine.container is not None:
            continue
        held = [(one, process) for one in facts.gpus for process in one.processes if process.is_zombie]
        if held:
            pids = list(dict.fromkeys(str(process.pid) for _, process in held))
            taken = sum(process.used_bytes or 0 for _, process in held)
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "gpus": ", ".join(dict.fromkeys(str(one.index) for one, _ in held)),
                    "processes": listed([f"pid {p.pid} {p.command or ''}".strip() for _, p in held], 4),
                    "taken": size(taken) if taken else None,
                    "pids": ",".join(pids),
                },
                evidence=seen(
                    "NVML and /proc",
                    {
                        node: tuple(
                            said("GPU {gpu}: pid {pid} is a zombie", gpu=o.index, pid=p.pid) for o, p in held[:8]
                        )
                    },
                ),
            )


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
                "holders": listed([_shown(p) for p in holders], 6) or None,
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


EXCLUSIVE = {"exclusive_process", "exclusive_thread"}


@Rule(
    code="GPU011",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.ENVIRONMENT,
    title="The compute mode of a GPU keeps the job out",
    message="node {node}: GPU {gpu} is in [[compute mode {mode}|an exclusive compute mode]][[ and belongs to "
    "{holder}]], so no rank can use it",
    remedy=(
        RemedyStep(
            explanation="allow processes again, as root",
            where="node {node}",
            command="sudo nvidia-smi -i {gpu} -c DEFAULT",
        ),
        RemedyStep(explanation="or use other GPUs: --devices or CUDA_VISIBLE_DEVICES", where="node {node}"),
    ),
)
def compute_prohibited(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The compute mode of the GPUs that the ranks will take: `prohibited`, or exclusive while another process has the
    GPU.
    ## Why it matters
    CUDA fails on this rank ("CUDA-capable device(s) is/are busy or unavailable", or no device at all), and the other
    ranks wait for it.
    ## Check by hand
    `nvidia-smi --query-gpu=index,compute_mode --format=csv`.
    ## When it is harmless
    An exclusive mode without a holder is a policy of many clusters, and no finding.
    """
    for node, facts in gpu.items():
        used = set(used_gpus(launch[node], facts))
        for one in facts.gpus:
            holder = one.processes[0] if one.processes else None
            is_taken = one.compute_mode in EXCLUSIVE and holder is not None
            if one.index in used and (one.compute_mode == "prohibited" or is_taken):
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "gpu": one.index,
                        "mode": one.compute_mode or None,
                        "holder": f"pid {holder.pid}" if holder is not None else None,
                    },
                    evidence=(
                        stated(f"NVML GPU {one.index}", "compute mode {mode}", node_rank=node, mode=one.compute_mode),
                    ),
                )
