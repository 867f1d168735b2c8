"""Who stopped a stage, by what the processes of its ranks were found to be doing afterwards.

`judging.stages` chose by what the ranks reported while the run went on (`StageResult.culprits`); here the processes'
states and last words are judged with it, so that one fault is reported once:

1. ranks that died, failed by themselves or were stopped are the cause, whatever the others say;
2. else the ranks that did not enter the stage (a stage of every rank by itself: did not finish it);
3. else all entered and nothing moved: no rank can be named from here.

A rank whose only sign is a closed connection or a time-out is a victim as long as there is another explanation.
"""

import re
from enum import StrEnum

from msgspec import Struct

from allready import model
from allready.judging.majority import Split
from allready.judging.stages import not_there, only_lost_a_peer
from allready.judging.values import grouped
from allready.model.operations import DEVICE_STAGE, IMPORT_STAGES, OWN_STAGES

OUT_OF_MEMORY = r"(?i)out of memory|OutOfMemory|MEMORY_ALLOCATION|MemoryAllocation|\bMemoryError\b"

NO_DEVICE = (
    r"(?i)"
    r"no CUDA GPUs|no CUDA-capable device|invalid device ordinal|driver on your system|device .*unavailable|no NVIDIA"
    r"|not compiled with CUDA|CUDA is not available|no GPU|devices? .*(not visible|busy)|initialization error"
    r"|ECC error|fallen off the bus"
)

_BUSY_CPU_S = 0.3
"""Of the last second of observation: above this the process computes, below it waits."""


class StopKind(StrEnum):
    """What the ranks of a `Blame` have in common; one rule speaks about each."""

    STOPPED = "stopped"
    DIED = "died"
    IMPORT = "import"
    DEVICE = "device"
    MEMORY = "memory"
    FAILED = "failed"
    SLOW_ALONE = "slow_alone"
    NOT_ENTERED = "not_entered"
    HUNG = "hung"
    WRONG = "wrong"


class Blame(Struct, frozen=True, kw_only=True):
    """One kind of trouble in the stage that stopped the run, and the ranks it is about (all of them for HUNG)."""

    kind: StopKind
    run: model.CollectiveRun
    stage: model.StageResult
    states: tuple[model.RankState, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of `states`, sorted."""
        return tuple(sorted({s.rank for s in self.states}))


def blame_first_run(collectives: model.Collectives, kind: StopKind) -> Blame | None:
    """The blame for `kind` in the run that the user asked for; None when there is nothing."""
    if not collectives.runs:
        return None
    return next((b for b in blame(collectives.runs[0]) if b.kind is kind), None)


def blame(run: model.CollectiveRun) -> tuple[Blame, ...]:
    """Everything that explains why `run` stopped; empty when it did not."""
    stage = run.bad
    if stage is None:
        return ()
    if stage.outcome == "wrong":
        return (Blame(kind=StopKind.WRONG, run=run, stage=stage, states=stage.ranks),)
    causes = grouped((kind, s) for s in stage.ranks if (kind := _own_fault(s, stage)) is not None)
    gone = [s for s in stage.ranks if _was_ended(s) or (s.state == "unknown" and stage.outcome == "failed")]
    if gone and not causes:
        causes[StopKind.DIED] = tuple(gone)
    # The process that watched the run knows the order in time; the first causes are enough.
    first = {k: tuple(s for s in v if s.rank in stage.culprits) for k, v in causes.items()}
    causes = {k: v for k, v in first.items() if v} or causes
    if causes:
        return tuple(Blame(kind=k, run=run, stage=stage, states=s) for k, s in causes.items())
    behind = _behind(run, stage)
    if behind:
        kind = StopKind.SLOW_ALONE if stage.name in OWN_STAGES else StopKind.NOT_ENTERED
        return (Blame(kind=kind, run=run, stage=stage, states=behind),)
    return (Blame(kind=StopKind.HUNG, run=run, stage=stage, states=stage.ranks),)


def _own_fault(state: model.RankState, stage: model.StageResult) -> StopKind | None:
    """The kind of a rank that is in trouble by itself; None for one that waits, works, or only suffers."""
    if state.state == model.ProcessState.STOPPED:
        return StopKind.STOPPED
    if state.state == model.ProcessState.UNKNOWN:  # its node is gone; whatever it had to say
        return None
    error = state.error or ""
    # An abort is how libraries end a process after an error, so there the error counts; other signals say it all.
    if state.state == model.ProcessState.KILLED and not (error and state.signal == "SIGABRT"):
        return None if _was_ended(state) else StopKind.DIED
    if only_lost_a_peer(state.error, state.signal):
        return None
    if error:
        if stage.name in IMPORT_STAGES:
            return StopKind.IMPORT
        if re.search(OUT_OF_MEMORY, error):
            return StopKind.MEMORY
        return StopKind.DEVICE if stage.name == DEVICE_STAGE or re.search(NO_DEVICE, error) else StopKind.FAILED
    if state.state in {model.ProcessState.EXITED, model.ProcessState.ZOMBIE} and state.rank not in stage.finished:
        return StopKind.DIED
    return None


def _was_ended(state: model.RankState) -> bool:
    """It was asked to end: a cause only when there is no better one, because supervisors do so after a fault."""
    return state.state == model.ProcessState.KILLED and state.signal in model.ENDING_SIGNALS


def _behind(run: model.CollectiveRun, stage: model.StageResult) -> tuple[model.RankState, ...]:
    """States of the ranks that are not where the others are; made up as "unknown" for a rank without one."""
    known = {s.rank: s for s in stage.ranks}
    return tuple(
        known.get(
            r,
            model.RankState(rank=r, node_rank=-1, local_rank=-1, pid=None, step="?", state=model.ProcessState.UNKNOWN),
        )
        for r in not_there(sorted(run.ranks), stage.name, set(stage.entered), set(stage.finished))
    )


def culprits(blamed: Blame, world: model.World) -> model.Culprits:
    """The blamed ranks and their nodes; none where every rank of several nodes has the same trouble.

    When all ranks failed, those with another error than the majority are named, as far as there is a majority.
    """
    ranks = blamed.ranks
    if set(ranks) >= set(blamed.run.ranks) and len(blamed.run.ranks) > 1:
        stated = {s.rank: re.sub(r"\d+", "#", s.error or s.signal or s.state) for s in blamed.states}
        ranks = Split.by(stated, num_members=len(blamed.run.ranks)).outliers()
        if not ranks:
            nodes = {world.node_of(r) for r in blamed.ranks} - {None}
            return model.Culprits(nodes=tuple(n for n in nodes if n is not None) if world.num_nodes == 1 else ())
    nodes = {world.node_of(r) for r in ranks} - {None}
    return model.Culprits(ranks=ranks, nodes=tuple(sorted(n for n in nodes if n is not None)))


def waiting_class(state: model.RankState) -> tuple[model.FaultClass, model.Confidence]:
    """The fault class of a rank that is alive and has not come, by what its process was doing."""
    if state.state == model.ProcessState.NOT_STARTED:
        return model.FaultClass.START_ABSENT, model.Confidence.LIKELY
    if state.state in model.ProcessState.GONE:
        return model.FaultClass.DEAD, model.Confidence.LIKELY
    if state.state in {model.ProcessState.DISK, model.ProcessState.STOPPED}:
        return model.FaultClass.CPU_STUCK, model.Confidence.CERTAIN
    busy = state.cpu_s > _BUSY_CPU_S if state.cpu_s is not None else state.state == model.ProcessState.RUNNING
    if state.state in {model.ProcessState.RUNNING, model.ProcessState.SLEEPING}:
        return (model.FaultClass.CPU_BUSY if busy else model.FaultClass.CPU_STUCK), model.Confidence.LIKELY
    return model.FaultClass.CPU_STUCK, model.Confidence.POSSIBLE
