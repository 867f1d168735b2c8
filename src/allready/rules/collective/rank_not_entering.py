"""COL007."""

from collections.abc import Iterator

from msgspec.structs import replace

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import on_nodes, rank_labels, stage_label
from allready.model import Collectives, Confidence, FaultClass, Hit, RankState, Severity, World, ranges
from allready.rules.collective._blame import Kind, blame_first_run, culprits, doing, evidence, pids, waiting_class


@Rule(
    code="COL007",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    since="0.1",
    layer=Layer.STAGE,
    title="A rank did not come to a stage that others wait in",
    message="stage {stage}: rank {ranks} did not enter within {deadline_s} s ({doing}); rank {entered} did and wait",
    remedy="the evidence has its stack; to look again on node {nodes} while the others wait: py-spy dump --pid {pids}; "
    "cat /proc/{pids}/wchan; top -H -p {pids}. Busy means it is still working, D means storage, S means it waits for "
    "something else than the others",
)
def rank_not_entering(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Which ranks entered the stage (in the sweep: the size and iteration) that did not finish by its deadline, and what
    the processes of the others were doing: running and using CPU time (CPU-BUSY), asleep or in storage (CPU-STUCK).
    Ranks that wait inside the stage are victims and are not blamed.
    ## Why it matters
    A collective ends when the last rank has come.  Those inside will print the time-out, and the absent one prints
    nothing: without this, 600 s (NCCL) or 1800 s (Gloo) pass before anybody looks, and then at the wrong rank.
    ## Check by hand
    Compare `py-spy dump --pid PID` of all ranks: the one with another stack than the majority is late.
    ## When it is harmless
    When that rank is only slow at a first start (cold file system, compilation): run again and compare.
    """
    found = blame_first_run(collectives, Kind.NOT_ENTERED)
    if found is None:
        return
    by_class: dict[FaultClass, list[RankState]] = {}
    for state in found.states:
        by_class.setdefault(waiting_class(state)[0], []).append(state)
    nobody_came = not found.stage.entered
    for fault_class, states in by_class.items():
        confidence = min((waiting_class(s)[1] for s in states), key=lambda c: c.weight)
        accused = culprits(replace(found, states=tuple(states)), world)
        yield Hit(
            fault_class=fault_class,
            confidence=Confidence.POSSIBLE if nobody_came else confidence,
            culprits=accused,
            values={
                "stage": stage_label(found.stage),
                "ranks": rank_labels(world, states),
                "deadline_s": f"{found.stage.deadline_s:.0f}",
                "doing": "; ".join(dict.fromkeys(doing(s) for s in states[:4])),
                "entered": ranges(found.stage.entered) or "-",
                "nodes": on_nodes(world, _nodes(world, states)),
                "pids": pids(states[:1]),
            },
            evidence=evidence(found.stage, states),
        )


def _nodes(world: World, states: list[RankState]) -> list[int]:
    places = (s.node_rank if s.node_rank >= 0 else world.node_of(s.rank) for s in states)
    return [n for n in places if n is not None]
