"""Hits about who stopped a stage, as `judging.stage_states` judges it."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from allready import model
from allready.judging.stage_states import Blame, StopKind, culprits, waiting_class
from allready.judging.stated import said, stated
from allready.judging.values import grouped, on_nodes, rank_labels, stage_label
from allready.model.fill import in_english, words_of


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
        "error": error_of(blamed.states[0], 400),
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
            confidence=sure
            if blamed.stage.entered or blamed.kind is StopKind.SLOW_ALONE
            else model.Confidence.POSSIBLE,
            deadline_s=f"{blamed.stage.deadline_s:.0f}",
            doing=tuple({in_english(words): words for words in map(doing, states[:4])}.values()),
            pids=pids(states[:1]),
            **values,
        )


def error_of(state: model.RankState, most: int) -> str | tuple[model.Phrase, ...]:
    """Its error, to be said in any language; of a text that is not ours at most so many characters."""
    error = words_of(state, "error")
    return error[:most] if isinstance(error, str) else error


def _nodes(world: model.World, states: Iterable[model.RankState]) -> list[int]:
    places = (s.node_rank if s.node_rank >= 0 else world.node_of(s.rank) for s in states)
    return [n for n in places if n is not None]


def doing(state: model.RankState) -> model.Phrase:
    """What the process was doing: `sleeping, CPU 0.02 s/s, wchan do_poll, train.py:12 load`."""
    ended = said("exit code {code}", code=state.exit_code) if state.exit_code is not None else None
    return said(
        "{state}[[, CPU {cpu} s/s]][[, wchan {wchan}]][[, {frame}]]",
        state=state.signal or ended or state.state,
        cpu=None if state.cpu_s is None else f"{state.cpu_s:.2f}",
        wchan=state.wchan if state.wchan not in {None, "", "0"} else None,
        frame=state.stack[0] if state.stack else None,
    )


def evidence(
    stage: model.StageResult, states: Iterable[model.RankState], *, most: int = 16
) -> tuple[model.Evidence, ...]:
    """The stage's own line, then one for each rank: last step, state, innermost frames, last line of the error."""
    lines = [
        stated(
            said("stage {stage}", stage=stage.name),
            "{outcome} after {seconds} s, deadline {deadline} s; entered {entered}, finished {finished}[[; {detail}]]",
            outcome=stage.outcome,
            seconds=f"{stage.duration_s:.1f}",
            deadline=f"{stage.deadline_s:.0f}",
            entered=list(stage.entered)[:64],
            finished=list(stage.finished)[:64],
            detail=words_of(stage, "detail") or None,
        )
    ]
    lines += [
        stated(
            f"rank {state.rank}",
            "{step}; {doing}[[; stack: {frames}]][[; {error}]]",
            node_rank=state.node_rank if state.node_rank >= 0 else None,
            step=words_of(state, "step"),
            doing=doing(state),
            frames=" < ".join(state.stack[:5]) if len(state.stack) > 1 else None,
            error=words_of(state, "error") or None,
        )
        for state in list(states)[:most]
    ]
    return tuple(lines)


def pids(states: Iterable[model.RankState]) -> str:
    """Process ids separated by spaces, for a command line; `PID` when none is known."""
    return " ".join(str(s.pid) for s in list(states)[:8] if s.pid is not None) or "PID"
