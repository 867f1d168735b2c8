"""Further runs: which transport matters (`--isolate`), and from how many ranks on it fails (`--grow`)."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from allready.messaging.channel import HubSide, Narrator
from allready.model import CollectiveRun
from allready.preflight.collectives.hub import conduct
from allready.preflight.collectives.order_check import ALL_SWITCHES, NCCL_SWITCHES, QUESTIONS
from allready.preflight.collectives.spec import RunSpec

ASKED = "asked"
"""Label of the run in which NCCL is asked."""
CONTROL = "again"
"""Label of a run that changes nothing: what it differs by from another is noise."""
_ISOLATE_S = 20.0
_NCCL_STAGES = frozenset({"nccl_init", "nccl_small", "sweep"})


async def isolate(
    hub: HubSide,
    spec: RunSpec,
    failed: CollectiveRun,
    narrator: Narrator,
    *,
    switches: Sequence[tuple[str, str]] | None = None,
) -> list[CollectiveRun]:
    """Repeat the failing stage with one transport off at a time; a run that passes says which one matters.

    Each repeat goes only as far as the stage (of the sweep: the size) that failed.

    Args:
        switches: variables to set, one per repeat; None is NCCL_SWITCHES, and nothing at all where they cannot
            matter: no failure, another backend, or a stage before NCCL.
    """
    bad = failed.bad
    if bad is None:
        return []
    if switches is None:
        if spec.backend != "nccl" or bad.name not in _NCCL_STAGES:
            narrator.log("collectives.isolate_pointless", stage=bad.name, backend=spec.backend)
            return []
        switches = tuple(NCCL_SWITCHES.items())
    shorter = spec.up_to(bad.name)
    if bad.size_bytes is not None:
        shorter = replace(shorter, max_bytes=max(shorter.min_bytes, bad.size_bytes))
    runs = []
    for name, value in switches:
        runs.append(await conduct(hub, _switched_off(shorter, name, value), narrator))
        passed = runs[-1].bad is None
        narrator.log(
            "collectives.isolate_passes" if passed else "collectives.isolate_fails", variable=f"{name}={value}"
        )
    return runs


async def measure_without_each(
    hub: HubSide,
    spec: RunSpec,
    narrator: Narrator,
    *,
    switches: Sequence[tuple[str, str]] = tuple(ALL_SWITCHES.items()),
) -> list[CollectiveRun]:
    """Measure the largest size of a benchmark that worked with one transport off at a time.

    The first and the last run change nothing.  No run measures for longer than 20 s.
    """
    shorter = replace(
        spec,
        stages=tuple(s for s in spec.stages if s != "local"),
        min_bytes=spec.sizes_asked()[-1],
        max_bytes=spec.sizes_asked()[-1],
        step_bytes=0,
        sweep_budget_s=min(spec.sweep_budget_s, _ISOLATE_S),
    )
    control = replace(shorter, label=CONTROL)
    specs = [control, *(_switched_off(shorter, name, value) for name, value in switches), control]
    return [await conduct(hub, one, narrator) for one in specs]


def _switched_off(spec: RunSpec, name: str, value: str) -> RunSpec:
    """The same run with one variable that switches a transport off."""
    return replace(spec, label=f"isolate {name}={value}", extra_env={**spec.extra_env, name: value})


async def ask_nccl(
    hub: HubSide, spec: RunSpec, narrator: Narrator, *, questions: Mapping[str, str] = QUESTIONS
) -> CollectiveRun:
    """One short run in which NCCL says what it takes for each size, and what its own diagnostics find."""
    this = replace(
        spec,
        label=ASKED,
        stages=tuple(s for s in spec.stages if s != "local"),
        iters=1,
        warmup=0,
        is_graph=False,
        sweep_budget_s=min(spec.sweep_budget_s, _ISOLATE_S),
        extra_env={**spec.extra_env, **questions},
    )
    return await conduct(hub, this, narrator)


def with_choices(run: CollectiveRun, asked: CollectiveRun) -> CollectiveRun:
    """A run with the algorithms that NCCL named in another run of the same operations and sizes."""
    known = {(p.operation, p.size_bytes): p for p in asked.points}
    points = (
        replace(p, algorithm=p.algorithm or other.algorithm, protocol=p.protocol or other.protocol)
        if (other := known.get((p.operation, p.size_bytes)))
        else p
        for p in run.points
    )
    return replace(run, points=tuple(points))


async def grow(hub: HubSide, spec: RunSpec, narrator: Narrator) -> list[CollectiveRun]:
    """Run with 1, 2, 4, ... ranks, in the order of their numbers, up to all; ends with the first run that breaks.

    The ranks of the run that breaks, less those of the one before, are the members that were added.
    """
    runs: list[CollectiveRun] = []
    num_ranks = 1
    while True:
        this = replace(spec.first_ranks(num_ranks), label=f"grow {num_ranks}", is_grown=True)
        runs.append(await conduct(hub, this, narrator))
        if runs[-1].bad is not None or num_ranks == spec.world_size:
            break
        num_ranks = min(2 * num_ranks, spec.world_size)
    if runs[-1].bad is None:
        narrator.log("collectives.grow_passes", num_ranks=num_ranks)
    else:
        before = runs[-2].ranks if len(runs) > 1 else ()
        added = [str(r) for r in runs[-1].ranks if r not in before]
        narrator.log("collectives.grow_breaks", num_ranks=num_ranks, added=",".join(added))
    return runs
