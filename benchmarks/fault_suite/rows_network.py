"""D and E: the network during the run, and what is slow or odd."""

from dataclasses import replace

from fault_suite.scenario import Answer, Expected, Pick, Row, Setup

BROKEN = ("NET-BROKEN",)
COMM = ("SLOW-COMM",)
COMP = ("SLOW-COMP",)
LARGE = ("--size", "100000")
"""400 KB a step: some 10 ms between nodes without a fault."""


def _cut(pick: Pick) -> tuple[Setup, int, int]:
    """Three nodes, so that two of them can agree; a victim and a step."""
    layout = pick.layout(3, 1)
    node, step = pick.node(layout), pick.step()
    reports = tuple(range(3)) if node == 0 else (0,)
    expected = Expected(answers=(Answer(classes=BROKEN, nodes=(node,)),), nodes=reports)
    return Setup(layout=layout, expected=expected, victim=f"node {node}"), node, step


def _link_down(pick: Pick) -> Setup:
    made, node, step = _cut(pick)
    return replace(made, faults=(f"link_down node={node} step={step}",))


def _link_down_jax(pick: Pick) -> Setup:
    return replace(_link_down(pick), script="train_jax.py")


def _black_hole(pick: Pick) -> Setup:
    made, node, step = _cut(pick)
    others = [n for n in range(3) if n != node]
    drops = [f"one_way_drop source={a} target={b} step={step}" for o in others for a, b in ((o, node), (node, o))]
    return replace(made, faults=tuple(drops))


def _black_hole_jax(pick: Pick) -> Setup:
    return replace(_black_hole(pick), script="train_jax.py")


def _one_pair(pick: Pick) -> Setup:
    made, node, step = _cut(pick)
    peer = (node + 1) % 3
    drops = tuple(f"one_way_drop source={a} target={b} step={step}" for a, b in ((node, peer), (peer, node)))
    links = tuple(sorted(((node, peer), (peer, node))))
    expected = Expected(answers=(Answer(classes=BROKEN, links=links),), nodes=(0, 1, 2))
    return replace(made, faults=drops, expected=expected, victim=f"nodes {node} and {peer}")


def _one_way(pick: Pick) -> Setup:
    made, source, step = _cut(pick)
    target = (source + 1) % 3
    expected = Expected(answers=(Answer(classes=BROKEN, links=((source, target),)),), nodes=(0, 1, 2))
    fault = f"one_way_drop source={source} target={target} step={step}"
    return replace(made, faults=(fault,), expected=expected, victim=f"{source} -> {target}")


def _loss(pick: Pick) -> Setup:
    made, node, step = _cut(pick)
    percent = pick.dose(("5", "2"))
    expected = Expected(answers=(Answer(classes=(*COMM, *BROKEN), nodes=(node,)),), statuses=("fault", "healthy"))
    return replace(
        made,
        faults=(f"random_loss node={node} percent={percent} step={step}",),
        expected=expected,
        dose=f"{percent} %",
        script_args=LARGE,
        limit_s=25,
    )


def _slow_link(pick: Pick) -> Setup:
    made, node, step = _cut(pick)
    rate = pick.dose(("10", "30"))
    expected = Expected(answers=(Answer(classes=COMM, nodes=(node,)),))
    return replace(
        made,
        faults=(f"slow_link node={node} rate_mbit_per_s={rate} step={step}",),
        expected=expected,
        dose=f"{rate} Mbit/s",
        script_args=LARGE,
        limit_s=25,
    )


def _flap(pick: Pick) -> Setup:
    made, node, step = _cut(pick)
    return replace(made, faults=(f"link_down node={node} step={step} lasts_s=2.5 up_s=6 repeat=3",), limit_s=25)


def _slow_rank(pick: Pick, kind: str, dose: str, args: tuple[str, ...]) -> Setup:
    layout = pick.layout()
    rank, step = pick.rank(layout), pick.step()
    expected = Expected(answers=(Answer(classes=COMP, ranks=(rank,)),))
    return Setup(
        layout=layout,
        script_args=args,
        faults=(f"{kind} rank={rank} step={step} {dose}",),
        expected=expected,
        dose=dose,
        victim=f"rank {rank}",
        limit_s=25,
    )


COMPUTE = ("--compute-ms", "10")


def _throttled(pick: Pick) -> Setup:
    return _slow_rank(pick, "quota", pick.dose(("percent=5", "percent=15")), COMPUTE)


def _pulses(pick: Pick) -> Setup:
    return _slow_rank(pick, "pulses", pick.dose(("stop_ms=400", "stop_ms=200")), ())


def _neighbour(pick: Pick) -> Setup:
    return _slow_rank(pick, "neighbour", "processes=8", COMPUTE)


def _slow_data(pick: Pick) -> Setup:
    """The rank's data set is slow from the first step on: there is no healthy time to compare with, only the others."""
    layout = pick.layout()
    rank = pick.rank(layout)
    ms = pick.dose(("150", "70"))
    args = ("--loader", "1", "--slow-data-rank", str(rank), "--slow-data-ms", ms)
    expected = Expected(answers=(Answer(classes=COMP, ranks=(rank,)),))
    return Setup(
        layout=layout,
        script_args=args,
        mark=(rank, 3),
        expected=expected,
        dose=f"{ms} ms",
        victim=f"rank {rank}",
        limit_s=25,
    )


def _mixed(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    step = pick.step()
    slow, busy = pick.random.sample(range(3), 2)
    faults = (f"slow_link node={slow} rate_mbit_per_s=20 step={step}", f"slow rank={busy} step={step} ms=100")
    answers = (Answer(classes=("SLOW-MIXED",), ranks=(busy,), nodes=(slow,)),)
    return Setup(
        layout=layout,
        script_args=LARGE,
        faults=faults,
        expected=Expected(answers=answers),
        victim=f"link of node {slow}, rank {busy}",
        limit_s=25,
    )


def _collecting(pick: Pick) -> Setup:
    """Pauses of the garbage collector, now here, now there: no rank is to be blamed."""
    step = pick.step()
    answers = (Answer(classes=("SLOW-NOCULPRIT",), ranks=(), nodes=()),)
    return Setup(
        layout=pick.layout(),
        faults=(f"gc_pause rank=all step={step}",),
        expected=Expected(answers=answers, statuses=("healthy", "fault", "waiting")),
        victim="nobody",
        limit_s=15,
    )


def _forgetting(pick: Pick) -> Setup:
    """A pause of a minute without collectives, after which a firewall knows no connection of the ranks any more."""
    layout, step = pick.layout(), pick.step()
    answers = (Answer(classes=BROKEN, links=((0, 1),)),)
    return Setup(
        layout=layout,
        faults=(f"idle_forgotten node={pick.node(layout)} idle_s=60",),
        mark=(0, step),
        script_args=("--evaluate-at", str(step), "--evaluate-s", "64"),
        expected=Expected(answers=answers),
        victim="links of nodes 0 and 1",
        limit_s=90,
    )


def _not_here(pick: Pick) -> Setup:
    return Setup(layout=pick.layout())


ROWS = (
    Row(id="D01", title="link down", make=_link_down, core=True),
    Row(id="D02", title="black hole around one node", make=_black_hole, needs=("filters",)),
    Row(id="D03", title="one pair of nodes cut off", make=_one_pair, core=True, needs=("filters",)),
    Row(id="D04", title="one direction between two nodes lost", make=_one_way, needs=("filters",)),
    Row(id="D05", title="random loss at one node", make=_loss, needs=("filters",)),
    Row(id="D06", title="slow link of one node", make=_slow_link, core=True),
    Row(id="D07", title="delay and jitter", make=_not_here, needs=("delay",)),
    Row(id="D08", title="link flaps", make=_flap),
    Row(id="D09", title="idle connections dropped", make=_forgetting, standard=False, needs=("filters",)),
    Row(id="D01J", title="link down, JAX", make=_link_down_jax, framework="jax", needs=("jax",)),
    Row(id="D02J", title="black hole, JAX", make=_black_hole_jax, framework="jax", needs=("jax", "filters")),
    Row(id="E01", title="CPU quota on one rank", make=_throttled, core=True, needs=("cpu",)),
    Row(id="E02", title="stop pulses on one rank", make=_pulses, core=True),
    Row(id="E03", title="noisy neighbour on one rank's CPU", make=_neighbour),
    Row(id="E04", title="slow data on one rank", make=_slow_data),
    Row(id="E05", title="garbage collection pauses in turn", make=_collecting, standard=False),
    Row(id="E06", title="slow link here, slow CPU there", make=_mixed),
    Row(id="E07", title="clock skew", make=_not_here, needs=("clock",)),
    Row(id="E08", title="GPU clock cap", make=_not_here, standard=False, needs=("gpu",)),
)
