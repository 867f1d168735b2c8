from collections.abc import Iterator

from allready import model
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import rank_label, stage_label


@Rule(
    code="COL013",
    severity=model.Severity.ERROR,
    fault_class=model.FaultClass.NET_BROKEN,
    layer=Layer.STAGE,
    title="The collectives fail from a certain number of ranks on",
    message="{works} ranks work, {breaks} do not: stage {stage} {outcome}[[ when rank {added} joins]]",
    remedy="look at what joined[[: rank {added}]]; repeat with that member left out (--nnodes, --devices) to confirm "
    "it",
)
def grow_breaks(collectives: model.Collectives, world: model.World) -> Iterator[model.Hit]:
    """
    ## What it checks
    The runs of --grow (1, 2, 4, … ranks): the first number that fails, and who was added to the last that worked.
    The added ranks are blamed when it is a single one, or when all are of one node that had no part before.
    ## Why it matters
    A big job that hangs names no rank; the step at which it begins names the member, or shows that it is the number
    itself (a limit of open files, of memory, of queue pairs).
    ## Check by hand
    Start the same job with fewer ranks, doubling them.
    ## When it is harmless
    When the failing size was stopped by hand.
    """
    runs = sorted(((len(run.ranks), run) for run in collectives.runs if run.is_grown), key=lambda item: item[0])
    first_bad = next((i for i, (_, run) in enumerate(runs) if run.bad is not None), None)
    if first_bad is None:
        return
    number, broken = runs[first_bad]
    before = runs[first_bad - 1][1].ranks if first_bad else ()
    added = tuple(sorted(set(broken.ranks) - set(before)))
    stage = broken.bad
    if stage is None:
        return
    nodes = {world.node_of(r) for r in broken.ranks} - {None}
    yield model.Hit(
        fault_class=model.FaultClass.HW_HANG if len(nodes) == 1 and broken.backend == "nccl" else None,
        confidence=model.Confidence.LIKELY,
        culprits=_culprits(added, before, world),
        values={
            "works": len(before),
            "breaks": number,
            "stage": stage_label(stage),
            "outcome": stage.outcome,
            "added": rank_label(world, added[0]) if len(added) == 1 else model.ranges(added) or "?",
        },
        evidence=tuple(
            stated(
                run.label,
                "ranks {ranks}: {outcome}",
                ranks=model.ranges(run.ranks),
                outcome=f"{run.bad.name} {run.bad.outcome}" if run.bad else "ok",
            )
            for _, run in runs
        ),
    )


def _culprits(added: tuple[int, ...], before: tuple[int, ...], world: model.World) -> model.Culprits:
    nodes = {world.node_of(r) for r in added}
    earlier = {world.node_of(r) for r in before}
    if len(nodes) != 1 or not before:
        return model.Culprits()
    node = next(iter(nodes))
    new_node = () if node is None or node in earlier else (node,)
    if len(added) == 1:
        return model.Culprits(ranks=added, nodes=() if node is None else (node,))
    return model.Culprits(nodes=new_node, ranks=added if new_node else ())
