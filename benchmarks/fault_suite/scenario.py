"""What a scenario of the suite is: data, made anew for every seed."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from allready.lab.inject.commands import LabLayout

PORT = 29500


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One right answer: any of the classes, and exactly these culprits.

    `ranks` None: nothing is asked of ranks; those that are named must sit on `nodes`.  `nodes` likewise: those that are
    named must be the ranks' own, or ends of the links.  `links_among`: at least one of these, and no other: where a job
    tries one path after the other, only the first of the broken ones can be seen.  `variables` must be among those
    named.
    """

    classes: tuple[str, ...]
    ranks: tuple[int, ...] | None = None
    nodes: tuple[int, ...] | None = None
    links: tuple[tuple[int, int], ...] | None = None
    links_among: tuple[tuple[int, int], ...] | None = None
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the tool must say.

    `answers`: any of them is right; empty for controls, where nothing may be called a fault.  `statuses`: which status
    the report must have beside.  `nodes`: whose reports count; None: node 0's.  `in_findings`: a finding is enough.
    `may_run`: a job that runs in spite of the fault (the launcher has found a way around it) is right, too.
    `excused`: nodes that a report may name though no answer does (any process that sees an effect and cannot see the
    cause).
    """

    answers: tuple[Answer, ...] = ()
    statuses: tuple[str, ...] = ("fault",)
    nodes: tuple[int, ...] | None = None
    in_findings: bool = False
    may_run: bool = False
    excused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One scenario made for one seed: what is started, what is broken, what must be reported.

    `faults`: as on the command line of `allready lab run`.  `mark`: (rank, step) whose reaching is the onset, where the
    script itself has the fault.  `from_launch`: a start-up fault; time counts from the last command's start.
    `by_ranks`: one that only ranks can show, when they connect; time counts from the last one that entered what hangs.
    `before`: commands started in a node first (a listener on a port).  `terminate_at_s`: SIGTERM to all commands so
    long after the job's first step.  `runs_to_its_end`: watched until the job ends by itself.
    """

    layout: LabLayout
    script: str = "train.py"
    script_args: tuple[str, ...] = ()
    run_args: tuple[str, ...] = ()
    node_args: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    node_env: Mapping[int, Mapping[str, str | None]] = field(default_factory=dict)
    node_prefix: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    before: tuple[tuple[int, tuple[str, ...]], ...] = ()
    faults: tuple[str, ...] = ()
    mark: tuple[int, int] | None = None
    from_launch: bool = False
    by_ranks: bool = False
    terminate_at_s: float | None = None
    runs_to_its_end: bool = False
    limit_s: float = 20.0  # after the onset; a fault that is not named by then is missed
    expected: Expected = Expected()
    dose: str = ""
    victim: str = ""


class Pick:
    """The chances of one scenario: random victims and onsets, the same for the same row and seed."""

    def __init__(self, row: str, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(f"{row} {seed}")  # noqa: S311 - no secret

    def layout(self, num_nodes: int = 2, nproc_per_node: int = 2) -> LabLayout:
        """Nodes and ranks; rank 0 listens on node 0."""
        return LabLayout(num_nodes=num_nodes, nproc_per_node=nproc_per_node, master_addr="10.77.0.1", master_port=PORT)

    def rank(self, layout: LabLayout) -> int:
        """A victim."""
        return self.random.randrange(layout.world_size)

    def node(self, layout: LabLayout, *, but_0: bool = False) -> int:
        """A victim."""
        return self.random.randrange(1 if but_0 else 0, layout.num_nodes)

    def step(self) -> int:
        """An onset, some seconds after the first step."""
        return self.random.randrange(60, 160)

    def dose(self, doses: Sequence[str]) -> str:
        """How loud, by turns with the seed, so that few seeds see all."""
        return doses[self.seed % len(doses)]


Make = Callable[[Pick], Setup]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the suite.  `needs`: what a machine must offer (`machine.MISSING`)."""

    id: str
    title: str
    make: Make
    core: bool = False
    standard: bool = True
    control: bool = False
    framework: str = "gloo"  # whose default time-out stands beside the result: "gloo" or "jax"
    needs: tuple[str, ...] = ()

    def setup(self, seed: int) -> Setup:
        """The scenario for a seed; scary but innocent lines are added to a fifth of all runs."""
        pick = Pick(self.id, seed)
        made = self.make(pick)
        if self.framework == "gloo" and made.script == "train.py" and pick.random.random() < 0.2:
            teller = pick.random.randrange(made.layout.world_size)
            line = pick.random.choice(DECOYS)
            made = replace(made, script_args=(*made.script_args, "--say", line, "--say-rank", str(teller)))
        return made


DECOYS = (
    "node7: NCCL WARN socketProgress: Connection closed by remote peer; retrying (harmless, handled)",
    "[dataset] Socket recv failed, trying the next mirror",
    "dmesg of last week said: NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception",
)
"""Lines that an innocent rank prints."""
