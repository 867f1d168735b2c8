"""Who stopped a stage: the one place where the states of the ranks become an accusation.

The rules of this area ask `blame` and speak only about their own kind, so that one fault is reported once:

1. ranks that died, failed by themselves or were stopped are the cause, whatever the others say;
2. else the ranks that did not enter the stage (a stage of every rank by itself: did not finish it);
3. else all entered and nothing moved: no rank can be named from here.

A rank whose only sign is a closed connection or a time-out is a victim as long as there is another explanation.
"""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready import model
from allready.judging.majority import Split
from allready.judging.stated import stated
from allready.judging.values import grouped, on_nodes, rank_labels, stage_label
from allready.model.operations import DEVICE_STAGE, IMPORT_STAGES, OWN_STAGES
from allready.signatures.peers import has_lost_or_missed_peer

OUT_OF_MEMORY = r"(?i)out of memory|OutOfMemory|MEMORY_ALLOCATION|MemoryAllocation|\bMemoryError\b"

NO_DEVICE = (
    r"(?i)"
    r"no CUDA GPUs|no CUDA-capable device|invalid device ordinal|driver on your system|device .*unavailable|no NVIDIA"
    r"|not compiled with CUDA|CUDA is not available|no GPU|devices? .*(not visible|busy)|initialization error"
    r"|ECC error|fallen off the bus"
)

BROKEN_DEVICE = r"(?i)ECC error|fallen off|hardware|unspecified launch failure|Xid"

_BUSY_CPU_S = 0.3
"""Of the last second of observation: above this the process computes, below it waits."""


class Kind(StrEnum):
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

    kind: Kind
    run: model.CollectiveRun
    stage: model.StageResult
    states: tuple[model.RankState, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of `states`, sorted."""
        return tuple(sorted({s.rank for s in self.states}))

    def of(self, kind: Kind) -> bool:
        """Whether this is about `kind`."""
        return self.kind is kind


def blame_first_run(collectives: model.Collectives, kind: Kind) -> Blame | None:
    """The blame for `kind` in the run that the user asked for; None when there is nothing."""
    if not collectives.runs:
        return None
    return next((b for b in blame(collectives.runs[0]) if b.of(kind)), None)


def blame(run: model.CollectiveRun) -> tuple[Blame, ...]:
    """Everything that explains why `run` stopped; empty when it did not."""
    stage = run.bad
    if stage is None:
        return ()
    if stage.outcome == "wrong":
        return (Blame(kind=Kind.WRONG, run=run, stage=stage, states=stage.ranks),)
    causes = grouped((kind, s) for s in stage.ranks if (kind := _own_fault(s, stage)) is not None)
    gone = [s for s in stage.ranks if _was_ended(s) or (s.state == "unknown" and stage.outcome == "failed")]
    if gone and not causes:
        causes[Kind.DIED] = tuple(gone)
    # The process that watched the run knows the order in time; the first causes are enough.
    first = {k: tuple(s for s in v if s.rank in stage.culprits) for k, v in causes.items()}
    causes = {k: v for k, v in first.items() if v} or causes
    if causes:
        return tuple(Blame(kind=k, run=run, stage=stage, states=s) for k, s in causes.items())
    behind = _behind(run, stage)
    if behind:
        kind = Kind.SLOW_ALONE if is_alone(stage) else Kind.NOT_ENTERED
        return (Blame(kind=kind, run=run, stage=stage, states=behind),)
    return (Blame(kind=Kind.HUNG, run=run, stage=stage, states=stage.ranks),)


def is_alone(stage: model.StageResult) -> bool:
    """Whether each rank goes through this stage by itself, without waiting for others."""
    return stage.name in OWN_STAGES


def _own_fault(state: model.RankState, stage: model.StageResult) -> Kind | None:
    """The kind of a rank that is in trouble by itself; None for one that waits, works, or only suffers."""
    if state.state == model.ProcessState.STOPPED:
        return Kind.STOPPED
    if state.state == model.ProcessState.UNKNOWN:  # its node is gone; whatever it had to say
        return None
    error = state.error or ""
    # An abort is how libraries end a process after an error, so there the error counts; other signals say it all.
    if state.state == model.ProcessState.KILLED and not (error and state.signal == "SIGABRT"):
        return None if _was_ended(state) else Kind.DIED
    if error and has_lost_or_missed_peer(error):
        return None
    if error:
        if stage.name in IMPORT_STAGES:
            return Kind.IMPORT
        if re.search(OUT_OF_MEMORY, error):
            return Kind.MEMORY
        return Kind.DEVICE if stage.name == DEVICE_STAGE or re.search(NO_DEVICE, error) else Kind.FAILED
    if state.state in {model.ProcessState.EXITED, model.ProcessState.ZOMBIE} and state.rank not in stage.finished:
        return Kind.DIED
    return None


def _was_ended(state: model.RankState) -> bool:
    """It was asked to end: a cause only when there is no better one, because supervisors do so after a fault."""
    return state.state == model.ProcessState.KILLED and state.signal in model.ENDING_SIGNALS


def _behind(run: model.CollectiveRun, stage: model.StageResult) -> tuple[model.RankState, ...]:
    """States of the ranks that are not where the others are; made up as "unknown" for a rank without one."""
    arrived = set(stage.finished) if is_alone(stage) else set(stage.entered)
    known = {s.rank: s for s in stage.ranks}
    return tuple(
        known.get(
            r,
            model.RankState(rank=r, node_rank=-1, local_rank=-1, pid=None, step="?", state=model.ProcessState.UNKNOWN),
        )
        for r in sorted(set(run.ranks) - arrived)
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


def hit_of(blamed: Blame, world: model.World, **changes: Any) -> model.Hit:
    """A hit that accuses the ranks of `blamed`.

    Args:
        blamed: of the run that the user asked for.
        world: names of the nodes.
        changes: fields of the hit by name; every other name is a value of its message.
    """
    fields = {name: changes.pop(name) for name in model.Hit.__struct_fields__ if name in changes}
    usual: dict[str, object] = {
        "stage": stage_label(blamed.stage),
        "ranks": rank_labels(world, blamed.states),
        "error": (blamed.states[0].error or "")[:400],
        "nodes": on_nodes(world, _nodes(world, blamed.states)),
    }
    known: dict[str, Any] = {"culprits": culprits(blamed, world), "evidence": evidence(blamed.stage, blamed.states)}
    return model.Hit(**(known | fields), values=usual | changes)


def hits_of_late(blamed: Blame, world: model.World, **values: object) -> Iterator[model.Hit]:
    """A hit for each class of what the ranks that have not come were doing."""
    for fault_class, states in grouped((waiting_class(state)[0], state) for state in blamed.states).items():
        sure = min((waiting_class(s)[1] for s in states), key=lambda c: c.weight)
        yield hit_of(
            replace(blamed, states=states),
            world,
            fault_class=fault_class,
            confidence=sure if blamed.stage.entered or blamed.of(Kind.SLOW_ALONE) else model.Confidence.POSSIBLE,
            deadline_s=f"{blamed.stage.deadline_s:.0f}",
            doing="; ".join(dict.fromkeys(doing(s) for s in states[:4])),
            pids=pids(states[:1]),
            **values,
        )


def _nodes(world: model.World, states: Iterable[model.RankState]) -> list[int]:
    places = (s.node_rank if s.node_rank >= 0 else world.node_of(s.rank) for s in states)
    return [n for n in places if n is not None]


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


def doing(state: model.RankState) -> str:
    """What the process was doing, neutral in language: `sleeping, wchan do_poll, train.py:12 load`."""
    parts = [state.signal or (f"exit {state.exit_code}" if state.exit_code is not None else state.state)]
    parts += [f"cpu {state.cpu_s:.2f} s/s"] if state.cpu_s is not None else []
    parts += [f"wchan {state.wchan}"] if state.wchan not in {None, "", "0"} else []
    parts += [state.stack[0]] if state.stack else []
    return ", ".join(parts)


def evidence(
    stage: model.StageResult, states: Iterable[model.RankState], *, most: int = 16
) -> tuple[model.Evidence, ...]:
    """The stage's own line, then one for each rank: last step, state, innermost frames, last line of the error."""
    lines = [
        stated(
            f"stage {stage.name}",
            "{outcome} after {seconds} s, deadline {deadline} s; entered {entered}, finished {finished}[[; {detail}]]",
            outcome=stage.outcome,
            seconds=f"{stage.duration_s:.1f}",
            deadline=f"{stage.deadline_s:.0f}",
            entered=list(stage.entered)[:64],
            finished=list(stage.finished)[:64],
            detail=stage.detail or None,
        )
    ]
    lines += [
        stated(
            f"rank {state.rank}",
            "{step}; {doing}[[; stack: {frames}]][[; {error}]]",
            node_rank=state.node_rank if state.node_rank >= 0 else None,
            step=state.step,
            doing=doing(state),
            frames=" < ".join(state.stack[:5]) if len(state.stack) > 1 else None,
            error=state.error or None,
        )
        for state in list(states)[:most]
    ]
    return tuple(lines)


def pids(states: Iterable[model.RankState]) -> str:
    """Process ids separated by spaces, for a command line; `PID` when none is known."""
    return " ".join(str(s.pid) for s in list(states)[:8] if s.pid is not None) or "PID"
