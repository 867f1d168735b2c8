"""The ranks that stopped a stage, by what happened to them."""

import re
from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import StopKind, blame_first_run
from allready.judging.stated import said
from allready.model import Collectives, FaultClass, Hit, Phrase, RankState, RemedyStep, Severity, World, ranges
from allready.model.fill import in_english
from allready.rules.collective._hits import error_of, hit_of, hits_of_late, pids


@Rule(
    code="COL004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    layer=Layer.STAGE,
    title="The framework cannot be imported on a rank",
    message="rank {ranks} cannot import what it needs: {error}",
    remedy=(
        RemedyStep(
            explanation="import the library with the same Python as the job (JAX: import jax)",
            command="python -c 'import torch'",
            where="node {nodes}",
        ),
        RemedyStep(
            explanation="check that this is the Python and the packages that you mean",
            command="which python; python -m pip check",
            where="node {nodes}",
        ),
        RemedyStep(shared="library_path"),
    ),
)
def import_failed(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That every rank's process can import torch (or JAX, with --framework jax).
    ## Why it matters
    A rank that ends in an import never opens or joins the store; all others wait for it for 60 to 1800 seconds.
    ## Check by hand
    `python -X importtime -c 'import torch' 2>&1 | tail` on that node, with the Python of the job.
    ## When it is harmless
    Never.
    """
    found = blame_first_run(collectives, StopKind.IMPORT)
    if found is not None:
        yield hit_of(found, world)


BROKEN_DEVICE = r"(?i)ECC error|fallen off|hardware|unspecified launch failure|Xid"


@Rule(
    code="COL005",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.STAGE,
    title="A rank cannot use its GPU",
    message="rank {ranks} cannot use {ranks:its GPU/their GPUs} in stage {stage}[[: {error}]]",
    remedy=(
        RemedyStep(
            explanation="where GPUs are missing on node {nodes}: in a container, docker run --gpus all; after a "
            "driver update, reboot or reload the modules"
        ),
        RemedyStep(shared="gpus"),
        RemedyStep(shared="visible_gpus"),
        RemedyStep(shared="xids"),
    ),
)
def device_failed(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That every rank's process sees the GPU of its local rank and can create a context on it.
    ## Why it matters
    The rank ends before it joins the others.  Words like "ECC error" or "fallen off the bus" mean broken hardware and
    are classed so; the rest is mostly a container without GPUs, a wrong CUDA_VISIBLE_DEVICES, or a driver that does not
    fit.
    ## Check by hand
    `python -c 'import torch; print(torch.cuda.device_count(), torch.zeros(1, device="cuda:0"))'` on that node.
    ## When it is harmless
    Never with NCCL; ranks that need no GPU run with `--backend gloo`.
    """
    found = blame_first_run(collectives, StopKind.DEVICE)
    if found is None:
        return
    is_broken = any(re.search(BROKEN_DEVICE, s.error or "") for s in found.states)
    yield hit_of(found, world, fault_class=FaultClass.HW_HANG if is_broken else None)


@Rule(
    code="COL003",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.STAGE,
    title="A rank failed with an error of its own",
    message="rank {ranks} failed in stage {stage}[[: {error}]]",
    remedy="read that error on node {nodes}; with NCCL the line above it says more: run again with NCCL_DEBUG=WARN; "
    "errors of other ranks about closed connections are its echo",
)
def rank_failed(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The last line of the exception of every rank when a stage fails.  Errors that only tell of another rank's end
    (closed or reset connections, time-outs, aborted communicators) do not count as an error of its own.  When all ranks
    failed with the same error, no rank is named.
    ## Why it matters
    The first error explains all others; in the logs of a big job it is one line among thousands of echoes.
    ## Check by hand
    Sort the ranks' logs by time; the earliest error that does not speak of a peer is the cause.
    ## When it is harmless
    Never: this stage does nothing that a healthy job could do without.
    """
    found = blame_first_run(collectives, StopKind.FAILED)
    if found is None:
        return
    is_unreached = all(s.is_store_unreachable for s in found.states)
    yield hit_of(found, world, fault_class=FaultClass.START_PATH if is_unreached else None)


@Rule(
    code="COL002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    layer=Layer.STAGE,
    title="A rank's process died",
    message="rank {ranks} ended in stage {stage} ({how}); what the other ranks print is only {ranks:its/their} echo",
    remedy=(
        RemedyStep(
            explanation="SIGKILL is mostly the kernel's OOM killer or the batch system; SIGBUS mostly a full "
            "/dev/shm; SIGSEGV or SIGABRT: the last lines of that rank's log on node {nodes}"
        ),
        RemedyStep(shared="oom_kills"),
        RemedyStep(shared="shm"),
    ),
)
def rank_died(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a rank's process ended during a stage without an exception of its own: by a signal, or with an exit code.
    Ranks that end with "connection closed" or a time-out after it are not blamed.
    ## Why it matters
    The ranks that survive print the errors, the dead one prints nothing; its victims are blamed for it every day.
    ## Check by hand
    `dmesg -T | tail`, `journalctl -k`, and the accounting of the batch system (`sacct -j JOB`) on its node.
    ## When it is harmless
    When the process was ended on purpose.
    """
    found = blame_first_run(collectives, StopKind.DIED)
    if found is None:
        return
    # A bus error is what writing to a full /dev/shm looks like: then the rule about /dev/shm explains it better.
    by_bus_error = all(s.signal == "SIGBUS" for s in found.states)
    yield hit_of(
        found,
        world,
        severity=Severity.ERROR if by_bus_error else None,
        how=tuple({in_english(how): how for how in map(_how, found.states)}.values()),
    )


def _how(state: RankState) -> Phrase:
    ended = said("exit code {code}", code=state.exit_code) if state.exit_code is not None else None
    error = error_of(state, 200) or None
    return said("{state}[[: {error}]]", state=state.signal or ended or state.state, error=error)


@Rule(
    code="COL007",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STAGE,
    title="A rank did not enter a stage that others wait in",
    message="rank {ranks} did not enter stage {stage} within {deadline_s} s ({doing}); rank {entered} entered "
    "and waited",
    remedy=(
        RemedyStep(
            explanation="the evidence has its stack; look again on node {nodes} while the others wait: state R means "
            "it is still working, D that it waits for storage, S for something else than the others"
        ),
        RemedyStep(shared="stack"),
        RemedyStep(shared="process_state"),
    ),
)
def rank_not_entering(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Which ranks entered the stage (in the sweep: the size and iteration) that did not finish by its deadline, and what
    the processes of the others were doing: running and using CPU time (CPU-BUSY), asleep or in storage (CPU-STUCK).
    Ranks that wait inside the stage are victims and are not blamed.
    ## Why it matters
    A collective ends when the last rank has come.  Those inside will print the time-out, and the absent one prints
    nothing: without this, 600 s (NCCL) or 1800 s (Gloo) pass before an error appears, and it names the wrong rank.
    ## Check by hand
    Compare `py-spy dump --pid PID` of all ranks: the one with another stack than the majority is late.
    ## When it is harmless
    When that rank is only slow at a first start (cold file system, compilation): run again and compare.
    """
    found = blame_first_run(collectives, StopKind.NOT_ENTERED)
    if found is not None:
        yield from hits_of_late(found, world, entered=ranges(found.stage.entered) or "-")


@Rule(
    code="COL006",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.STAGE,
    title="A rank ran out of memory",
    message="rank {ranks} ran out of memory in stage {stage}[[: {error}]]",
    remedy=(
        RemedyStep(explanation="end what holds the memory on node {nodes}, or try a smaller sweep: --max-bytes 64M"),
        RemedyStep(shared="gpu_use"),
        RemedyStep(shared="memory"),
    ),
)
def out_of_memory(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a rank ended a stage with an out-of-memory error, of its GPU or of the host.
    ## Why it matters
    The stages need little: the largest size of the sweep two or three times, and what CUDA and NCCL take for themselves
    (0.5 to 2 GB on a GPU).  When that does not fit, another process holds the memory, and training would end the same
    way.
    ## Check by hand
    `nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv`; `free -h`; `cat /sys/fs/cgroup/memory.max`.
    ## When it is harmless
    When the sweep was asked for with sizes that rightly do not fit (`--max-bytes`).
    """
    found = blame_first_run(collectives, StopKind.MEMORY)
    if found is not None:
        yield hit_of(found, world)


@Rule(
    code="COL001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STAGE,
    title="A rank's process is stopped",
    message="rank {ranks} {ranks:is/are} stopped (state T) in stage {stage}; the other ranks wait for {ranks:it/them}",
    remedy=(
        RemedyStep(
            explanation="the check ends its own processes, but what stopped it on node {nodes} will stop the job too:"
            " a debugger (grep TracerPid /proc/PID/status), Ctrl-Z in a shell, a batch system that "
            "suspends jobs, a frozen cgroup"
        ),
        RemedyStep(shared="let_go_on"),
    ),
)
def rank_stopped(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    When a stage of the collectives ends badly, the state of every rank's process as the kernel shows it.
    ## Why it matters
    A stopped process keeps its connections open, so nothing fails: all other ranks wait for it until their time-out,
    600 s with NCCL and 1800 s with Gloo, and their messages never name it.
    ## Check by hand
    `ps -o pid,stat,wchan:20,cmd -C python` on its node: T is stopped by a signal, t is stopped by a debugger.
    ## When it is harmless
    When that rank is being debugged.
    """
    found = blame_first_run(collectives, StopKind.STOPPED)
    if found is not None:
        yield hit_of(found, world, pids=pids(found.states))


@Rule(
    code="COL008",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STAGE,
    title="A rank did not finish a step of its own",
    message="rank {ranks} did not finish stage {stage} within {deadline_s} s ({doing}); this stage waits for no "
    "other rank",
    remedy=(
        RemedyStep(
            explanation="time the import: state D, or a stack in file reading, means that the storage of the "
            "environment is slow",
            command="time python -c 'import torch'",
            where="node {nodes}",
        ),
        RemedyStep(
            explanation="ask the GPU driver: no answer means that it hangs",
            command="timeout 10 nvidia-smi",
            where="node {nodes}",
        ),
        RemedyStep(shared="stack"),
    ),
)
def rank_slow_alone(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The stages in which no rank waits for another (import, device, allocate): who did not finish by the deadline, and
    what its process was doing.
    ## Why it matters
    A cold or overloaded file system makes `import torch` last minutes on some nodes, and a sick driver blocks the first
    CUDA call for ever; the other ranks then wait at the rendezvous and run into its time-out.
    ## Check by hand
    `time python -c 'import torch'` and `time nvidia-smi` on that node, twice.
    ## When it is harmless
    At a first start after a reboot, when a second one is fast.
    """
    found = blame_first_run(collectives, StopKind.SLOW_ALONE)
    if found is not None:
        yield from hits_of_late(found, world)
