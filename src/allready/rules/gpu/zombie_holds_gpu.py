"""GPU020."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import listed, seen
from allready.model import Culprits, FaultClass, GpuFacts, Hit, HostFacts, PerNode, RemedyStep, Severity, World
from allready.units import size


@Rule(
    code="GPU020",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.2",
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
                    "taken": size(taken) if taken else "?",
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
