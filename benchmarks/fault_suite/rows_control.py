"""K: jobs in which nothing is wrong.  Nothing may be called a fault, and no rank accused."""

from dataclasses import replace

from allready.lab.inject.commands import LabLayout
from fault_suite.scenario import Expected, Pick, Row, Setup

STEPS = ("--steps", "450")


def _healthy(pick: Pick, *args: str, layout: LabLayout | None = None) -> Setup:
    return Setup(
        layout=layout or pick.layout(),
        script_args=(*STEPS, *args),
        runs_to_its_end=True,
        limit_s=75,
        expected=Expected(),
    )


SHAPES = (
    "2x2", "2x1", "3x1 --pattern ring", "1x4 --pattern groups", "4x1 --size 100000", "2x2 --pattern p2p",
    "2x1 --pattern all_to_all --size 50000", "2x2 --loader 1", "3x1 --step-ms 5 --steps 2000",
    "2x1 --step-ms 300 --steps 70",
)  # fmt: skip
"""Nodes x ranks and the job's options: what is quiet in one shape may look like a fault in another."""


def _plain(pick: Pick) -> Setup:
    dose = pick.dose(SHAPES)
    shape, *args = dose.split()
    num_nodes, nproc_per_node = map(int, shape.split("x"))
    return replace(_healthy(pick, *args, layout=pick.layout(num_nodes, nproc_per_node)), dose=dose)


def _slow_first_step(pick: Pick) -> Setup:
    return _healthy(pick, "--first-s", "10")


def _evaluation(pick: Pick) -> Setup:
    return _healthy(pick, "--evaluate-at", str(pick.step()), "--evaluate-s", "20")


def _heavy_rank_0(pick: Pick) -> Setup:
    return _healthy(pick, "--compute-ms", "5", "--heavy-rank", "0", "--heavy-percent", "20")


def _rotating(pick: Pick) -> Setup:
    return replace(_healthy(pick), faults=(f"rotate rank=all step={pick.step()} ms=25",))


def _uniformly_slow(pick: Pick) -> Setup:
    step = pick.step()
    if pick.dose(("link", "steps")) == "link":
        made = _healthy(pick, "--size", "50000")
        links = tuple(f"slow_link node={node} rate_mbit_per_s=100 step={step}" for node in (0, 1))
        return replace(made, faults=links, dose="link")
    return replace(_healthy(pick), faults=(f"slow rank=all step={step} ms=30",), dose="steps")


def _terminated(pick: Pick) -> Setup:
    made = replace(_healthy(pick), script_args=("--steps", "3000"))
    return replace(made, terminate_at_s=pick.random.uniform(3, 6))


def _late_start(pick: Pick) -> Setup:
    return replace(_healthy(pick), faults=("start_late node=1 delay_s=20",))


ROWS = (
    Row(id="K0", title="healthy run", make=_plain, core=True, control=True),
    Row(id="K1", title="first step much slower", make=_slow_first_step, core=True, control=True),
    Row(id="K2", title="evaluation without collectives", make=_evaluation, core=True, control=True),
    Row(id="K3", title="rank 0 a fifth heavier", make=_heavy_rank_0, core=True, control=True),
    Row(id="K4", title="imbalance that rotates", make=_rotating, core=True, control=True),
    Row(id="K5", title="everything uniformly slower", make=_uniformly_slow, core=True, control=True),
    Row(id="K6", title="planned SIGTERM of all", make=_terminated, core=True, control=True),
    Row(id="K7", title="one node 20 s late, then fine", make=_late_start, core=True, control=True),
)
