"""A scenario: one command per node, faults at their times, and what became of each node."""

import contextlib
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct

from allready.errors import UsageError
from allready.lab.faults import DoNotStart, Fault, StartLate
from allready.lab.lab import AppliedFault, Lab, end_group


class Command(Struct, frozen=True, kw_only=True):
    """What one node runs; `env` is added to the environment, None as a value takes a variable out."""

    argv: Sequence[str]
    env: Mapping[str, str | None] = {}


class NodeOutcome(Struct, frozen=True, kw_only=True):
    """What became of one node's command.  Times are seconds after the start of the scenario."""

    node: int
    returncode: int | None  # None: never started; negative: ended by that signal
    stdout: str
    stderr: str
    start_s: float | None  # None: never started
    end_s: float | None
    timed_out: bool  # it still ran at the end of the scenario and was killed


class ScenarioResult(Struct, frozen=True, kw_only=True):
    """All nodes that have a command, by node rank."""

    nodes: Mapping[int, NodeOutcome]
    duration_s: float


_LIFT, _APPLY, _START = 0, 1, 2  # in this order when several are due at once
_Event = tuple[float, int, int, Fault | None]  # when, what, index of the fault or node, fault


class _Running(Struct):
    process: subprocess.Popen[bytes]
    start_s: float
    pidfd: int
    end_s: float | None = None
    timed_out: bool = False


def run_scenario(
    lab: Lab,
    commands: Mapping[int, Sequence[str] | Command],
    faults: Sequence[Fault] = (),
    *,
    timeout_s: float,
    cwd: str | os.PathLike[str] | None = None,
) -> ScenarioResult:
    """Start every node's command, put faults in force and lift them at their times; ends when all commands have ended.

    Faults with `start_s` 0 are in force before the first command starts.  At `timeout_s` whatever still runs is
    killed and marked `timed_out`.  Afterwards every process is reaped and every fault lifted, also after an error.

    Raises:
        UsageError: a node or a fault that makes no sense, or two faults that exclude each other.
        LabError: a fault could not be applied.
    """
    wanted = {node: c if isinstance(c, Command) else Command(argv=tuple(c)) for node, c in sorted(commands.items())}
    num_nodes = lab.view.num_nodes
    if wrong := [node for node in wanted if not 0 <= node < num_nodes]:
        raise UsageError("no node {node}; the lab has node 0 to {last}", node=wrong[0], last=num_nodes - 1)
    for fault in faults:
        fault.check_nodes(num_nodes)
    starts = dict.fromkeys(wanted, 0.0) | {f.node: f.delay_s for f in faults if isinstance(f, StartLate)}
    for absent in {f.node for f in faults if isinstance(f, DoNotStart)}:
        starts.pop(absent, None)
    live = [(i, f) for i, f in enumerate(faults) if not f.scenario_only]
    events: list[_Event] = [(f.start_s, _APPLY, i, f) for i, f in live]
    events += [(f.end_s, _LIFT, i, f) for i, f in live if f.end_s is not None]
    events += [(starts[node], _START, node, None) for node in wanted if node in starts]
    events.sort(key=lambda event: event[:3])
    with contextlib.ExitStack() as stack:
        # Inside the lab's own folder: when this process is killed, `down` removes it with the rest.
        temporary = tempfile.TemporaryDirectory(prefix="scenario-", dir=lab.folder, ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(temporary))
        player = _Player(lab, wanted, stack, folder, cwd)
        while events and events[0][:2] == (0.0, _APPLY):
            player.play(events.pop(0))  # however long this takes: the clock starts with the first command
        player.begun = time.monotonic()
        while events and events[0][0] <= timeout_s:
            starts_later = any(event[1] == _START for event in events)
            if not player.wait(events[0][0], though_idle=starts_later):
                break
            player.play(events.pop(0))
        player.wait(timeout_s)
        player.end()
        duration_s = player.now_s()
        return ScenarioResult(nodes={node: player.outcome(node) for node in wanted}, duration_s=duration_s)


class _Player:
    """Carries a scenario out; everything that it opens is given back by `stack`."""

    def __init__(
        self,
        lab: Lab,
        wanted: Mapping[int, Command],
        stack: contextlib.ExitStack,
        folder: Path,
        cwd: str | os.PathLike[str] | None,
    ) -> None:
        self.begun = time.monotonic()
        self._lab, self._wanted, self._stack, self._folder, self._cwd = lab, wanted, stack, folder, cwd
        self._running: dict[int, _Running] = {}
        self._applied: dict[int, AppliedFault] = {}

    def now_s(self) -> float:
        return time.monotonic() - self.begun

    def play(self, event: _Event) -> None:
        _, what, number, fault = event
        if what == _START:
            self._start(number)
        elif what == _LIFT:
            self._applied[number].undo()
        else:
            assert fault is not None
            self._applied[number] = self._stack.enter_context(self._lab.apply(fault))

    def _file(self, node: int, stream: str) -> IO[bytes]:
        return self._stack.enter_context((self._folder / f"node{node}.{stream}").open("w+b"))

    def _start(self, node: int) -> None:
        command = self._wanted[node]
        process = self._lab.popen(
            node,
            command.argv,
            env=command.env,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._file(node, "out"),
            stderr=self._file(node, "err"),
        )
        self._stack.callback(end_group, process)
        pidfd = os.pidfd_open(process.pid)
        self._stack.callback(os.close, pidfd)
        self._running[node] = _Running(process=process, start_s=self.now_s(), pidfd=pidfd)

    def wait(self, until_s: float, *, though_idle: bool = False) -> bool:
        """Note the end of commands until a time; False as soon as none runs, unless `though_idle`."""
        while True:
            open_ones = {r.pidfd: r for r in self._running.values() if r.end_s is None}
            if not open_ones and not though_idle:
                return False
            left_s = until_s - self.now_s()
            poller = select.poll()
            for pidfd in open_ones:
                poller.register(pidfd, select.POLLIN)
            for pidfd, _ in poller.poll(max(left_s, 0) * 1000):
                open_ones[pidfd].end_s = self.now_s()
                open_ones[pidfd].process.wait()
            if left_s <= 0:
                return True

    def end(self) -> None:
        for running in self._running.values():
            if running.end_s is None:
                running.timed_out = running.process.poll() is None
                end_group(running.process)
                running.end_s = self.now_s()

    def outcome(self, node: int) -> NodeOutcome:
        running = self._running.get(node)
        if running is None:
            return NodeOutcome(
                node=node, returncode=None, stdout="", stderr="", start_s=None, end_s=None, timed_out=False
            )
        out, err = ((self._folder / f"node{node}.{s}").read_bytes().decode("utf-8", "replace") for s in ("out", "err"))
        return NodeOutcome(
            node=node,
            returncode=running.process.returncode,
            stdout=out,
            stderr=err,
            start_s=running.start_s,
            end_s=running.end_s,
            timed_out=running.timed_out,
        )
