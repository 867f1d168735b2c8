"""Plays one scenario in a lab of its own under `allready run`, watches its reports, and ends it in any case."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from allready.errors import AllreadyError
from allready.lab.inject.commands import NodeCommand
from allready.lab.inject.job import LabJob
from allready.lab.inject.plan import FaultPlan, RankFault, plan_of
from allready.lab.inject.truth import Injected
from allready.lab.lab import Lab
from fault_suite import verdicts
from fault_suite.result import Result, judge
from fault_suite.scenario import Row, Setup
from fault_suite.scripts.marks import FORMAT, VARIABLE
from fault_suite.watch import Watch

SCRIPTS = Path(__file__).with_name("scripts")
LOOK_EVERY_S = 0.05
START_LIMIT_S = 75.0
BEFORE_LIMIT_S = 60.0
"""Until the first step of the job: importing torch takes a few seconds for each rank on a core."""
STEPS_OF_A_JOB_THAT_RUNS = 40
SETTLE_S = 2.0
"""A right verdict must stand so long."""
GRACE_S = 6.0
MARK_ID = 1000
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How scenarios are played.

    run_argv: the launcher, by default this installation's `allready run`.
    stop: once set, what is under way is ended and tidied up, and nothing new begins.
    """

    out: Path
    run_argv: tuple[str, ...] = (sys.executable, "-m", "allready", "run")
    run_flags: tuple[str, ...] = ("--grace", "3")
    state_dir: Path | None = None
    keep: bool = True  # the reports and logs of the job
    stop: threading.Event = field(default_factory=threading.Event)


def play(row: Row, seed: int, options: Options) -> Result:
    """One scenario from nothing to nothing; whatever fails on the way is reported in the result.

    Every process is gone, the lab is down and control groups are removed when this returns.
    """
    setup = row.setup(seed)
    folder = options.out / f"{row.id}-{seed}"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    stage = _Stage(row, seed, setup, folder, options)
    problem = ""
    try:
        stage.run()
    except (AllreadyError, OSError, subprocess.SubprocessError) as error:
        problem = f"{type(error).__name__}: {error}"
    result = judge(
        row,
        seed,
        setup,
        stage.watch.said,
        stage.truth,
        shows_s=stage.shows_s,
        ended_s=stage.ended_s,
        ran=stage.ran,
        problem=problem or stage.problem,
        duration_s=time.monotonic() - begun,
    )
    (folder / "said.json").write_bytes(msgspec.json.format(msgspec.json.encode(stage.watch.said), indent=1))
    (folder / "result.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    if not options.keep and result.passed:
        shutil.rmtree(folder)
    return result


class _Stage:
    """What one scenario needs while it runs."""

    def __init__(self, row: Row, seed: int, setup: Setup, folder: Path, options: Options) -> None:
        self._row, self._seed, self._setup, self._folder, self._options = row, seed, setup, folder, options
        nodes = range(setup.layout.num_nodes)
        self.watch = Watch({node: folder / f"node{node}" for node in nodes})
        self.truth: list[Injected] = []
        self.shows_s: float | None = None
        self.ended_s = time.time()
        self.problem = ""
        self.ran = False
        self._marks = folder / "enter"
        self._truth_folder = folder / "truth"

    def plan(self) -> FaultPlan:
        """What is injected, and the mark of the onset where the script has the fault itself."""
        plan = plan_of([fault.split() for fault in self._setup.faults], seed=self._seed)
        if self._setup.mark is None:
            return plan
        rank, step = self._setup.mark
        mark = RankFault(id=MARK_ID, kind="mark", rank=rank, step=step)
        return replace(plan, rank_faults=(*plan.rank_faults, mark))

    def commands(self) -> list[NodeCommand]:
        """What every node runs."""
        setup, layout = self._setup, self._setup.layout
        found = []
        for node in range(layout.num_nodes):
            flags = [
                "--nnodes",
                str(layout.num_nodes),
                "--node-rank",
                str(node),
                "--nproc-per-node",
                str(layout.nproc_per_node),
                "--master-addr",
                layout.master_addr,
                "--master-port",
                str(layout.master_port),
                "--report-dir",
                str(self._folder / f"node{node}"),
                *self._options.run_flags,
                *setup.run_args,
                *setup.node_args.get(node, ()),
            ]
            prefix = setup.node_prefix.get(node, ())
            argv = (*prefix, *self._options.run_argv, *flags, str(SCRIPTS / setup.script), *setup.script_args)
            env = {key: value for key, value in setup.node_env.get(node, {}).items() if value is not None}
            found.append(NodeCommand(node=node, argv=argv, env=env, label=f"node{node}"))
        return found

    def run(self) -> None:
        """Everything, and its end."""
        layout = self._setup.layout
        self._marks.mkdir()
        name = f"score-{os.getpid()}-{next(_numbers)}"
        with contextlib.ExitStack() as stack:
            lab = stack.enter_context(Lab.up(layout.num_nodes, name=name, state_dir=self._options.state_dir))

            def output(command: NodeCommand) -> IO[Any]:
                return stack.enter_context((self._folder / f"{command.label}.log").open("wb"))

            for node, argv in self._setup.before:
                self._start_before(lab, stack, node, argv)
            env = {VARIABLE: str(self._marks), "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "COLUMNS": "120"}
            job = LabJob(lab, self.commands(), self.plan(), self._truth_folder, output=output, env=env)
            try:
                with job:
                    self._follow(job)
                    self.ended_s = time.time()
                    job.end(grace_s=GRACE_S)
            finally:
                self.truth = job.truth()
                self.problem = self.problem or "; ".join([*job.problems(), *self.watch.broken])
                lab.down()
                job.driver.remove_groups()

    def _start_before(self, lab: Lab, stack: contextlib.ExitStack, node: int, argv: Sequence[str]) -> None:
        log = stack.enter_context((self._folder / f"before{node}.log").open("wb"))
        words = [sys.executable, *argv[1:]] if argv[0] == "python" else list(argv)
        process = lab.popen(node, words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + BEFORE_LIMIT_S
        while time.monotonic() < deadline and process.poll() is None and not self._options.stop.is_set():
            if _listens(process.pid):
                return
            time.sleep(0.05)
        raise AllreadyError(f"the scenario's own listener on node {node} did not come up")

    # --- the time in between

    def _follow(self, job: LabJob) -> None:
        setup = self._setup
        start_deadline = time.monotonic() + START_LIMIT_S
        end_deadline: float | None = None
        stands_since: float | None = None
        terminated = False
        while True:
            is_running = job.poll()
            self.watch.look()
            now = time.monotonic()
            onset_s = self._onset(job)
            if onset_s is not None and (end_deadline is None or setup.by_ranks):
                end_deadline = min(start_deadline, now - self._seen_for_s(job)) + setup.limit_s
            if not is_running:
                self.watch.look()
                break
            if end_deadline is None and now > start_deadline:
                self.problem = f"nothing to see within {START_LIMIT_S:.0f} s: the job did not come to its fault"
                break
            if end_deadline is not None and now > end_deadline:
                break
            if setup.terminate_at_s is not None and not terminated and self._running_s() > setup.terminate_at_s:
                terminated = True
                job.send(signal.SIGTERM)
            stands_since = (stands_since or now) if self._stands() and onset_s is not None else None
            if not setup.runs_to_its_end and stands_since is not None and now - stands_since > SETTLE_S:
                break
            if self._options.stop.wait(LOOK_EVERY_S):
                self.problem = "it was ended before its end"
                break
        self.shows_s = self._shows(job)
        self.ran = setup.expected.may_run and self._runs()

    def _seen_for_s(self, job: LabJob) -> float:
        """How long the fault can be seen so far, where that is not its onset: ranks may take long to come to it."""
        shows_s = self._shows(job) if self._setup.by_ranks else None
        return max(0.0, time.time() - shows_s) if shows_s is not None else 0.0

    def _stands(self) -> bool:
        expected, layout = self._setup.expected, self._setup.layout
        if expected.may_run and self._runs():
            return True
        newest = [self.watch.last(node) for node in (expected.nodes or (0,))]
        said = [one for one in newest if one is not None and not (expected.may_run and one.status == "waiting")]
        return any(verdicts.is_right(one, expected, layout) for one in said)  # while nodes meet it may yet clear

    def _runs(self) -> bool:
        """Whether all ranks have made steps, and the job goes on in spite of the fault."""
        counts = self._counts()
        return len(counts) == self._setup.layout.world_size and min(counts.values()) > STEPS_OF_A_JOB_THAT_RUNS

    def _onset(self, job: LabJob) -> float | None:
        """When the fault came into force, as far as it has; for controls the start of the job's first step."""
        if self._setup.from_launch:
            num_present = len(job.started_s)
            return max(job.started_s.values()) if num_present else None
        if self._setup.expected.answers:
            told = [t for t in job.truth() if t.status == "injected"]
            return told[-1].injected_s if told else None
        return self._first_step()

    def _first_step(self) -> float | None:
        entered = self._entered()
        return min(entered.values()) if entered else None

    def _running_s(self) -> float:
        first = getattr(self, "_first_s", None)
        if first is None:
            first = self._first_s = self._first_step()
        return time.time() - first if first is not None else 0.0

    def _read_marks(self, kind: str = "enter") -> dict[int, tuple[int, float]]:
        found = {}
        for path in self._marks.glob(f"{kind}-*[0-9]"):
            count, time_s = FORMAT.unpack(path.read_bytes()[: FORMAT.size].ljust(FORMAT.size, b"\0"))
            if count:
                found[int(path.name.partition("-")[2])] = (count, time_s)
        return found

    def _counts(self) -> dict[int, int]:
        """Rank -> collectives that it has entered."""
        return {rank: count for rank, (count, _) in self._read_marks().items()}

    def _entered(self) -> dict[int, float]:
        """Rank -> when it last entered a collective."""
        return {rank: time_s for rank, (_, time_s) in self._read_marks().items()}

    def _shows(self, job: LabJob) -> float | None:
        """When the fault could first be seen: the last of the others entered the operation that hangs.

        For what does not hang (slow ranks, silent wrong arguments) it is the onset itself.
        """
        onset_s = self._onset(job)
        if onset_s is not None and self._setup.by_ranks:
            begun = [time_s for kind in ("join", "enter") for _, time_s in self._read_marks(kind).values()]
            return max([onset_s, *begun])
        if onset_s is None or self._setup.from_launch:
            return onset_s
        culprits = {rank for answer in self._setup.expected.answers for rank in answer.ranks or ()}
        others = [time_s for rank, time_s in self._entered().items() if rank not in culprits]
        hung = bool(others) and time.time() - max(others) > 1.0
        return max([onset_s, *(others if hung else [])])


def _listens(pid: int) -> bool:
    """Whether a process has a listening TCP socket of its own: it may still be on its way into its node."""
    own = set()
    with contextlib.suppress(OSError):
        for name in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                own.add(str(name.readlink()))
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                    return True
    return False
