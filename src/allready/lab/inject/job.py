"""One job in a lab: a command in every node, with the injector in its ranks; always ends, and leaves nothing."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from allready.errors import UsageError
from allready.lab.faults import DoNotStart, StartLate
from allready.lab.inject.commands import NodeCommand
from allready.lab.inject.driver import Driver
from allready.lab.inject.plan import FaultPlan, python_path
from allready.lab.inject.truth import Injected, problems, read_truth
from allready.lab.lab import Lab, end_group

Output = Callable[[NodeCommand], int | IO[Any]]
"""Where a command's standard output and standard error go."""


class LabJob:
    """Use as a context manager; inside, call `poll` often: it also starts the nodes that are to come late."""

    def __init__(
        self,
        lab: Lab,
        commands: Sequence[NodeCommand],
        plan: FaultPlan,
        folder: Path,
        *,
        output: Output,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Nothing is started yet."""
        num_nodes = lab.view.num_nodes
        for fault in plan.net_faults:
            fault.fault.check_nodes(num_nodes)
        self._lab, self._folder, self._output, self._cwd = lab, folder, output, cwd
        scenario = [f.fault for f in plan.net_faults]
        absent = {f.node for f in scenario if isinstance(f, DoNotStart)}
        late = {f.node: f.delay_s for f in scenario if isinstance(f, StartLate)}
        self._waiting = [(late.get(c.node, 0.0), c) for c in commands if c.node not in absent]
        self._env: dict[str, str | None] = {**(env or {}), **plan.write(folder)}
        before = self._env.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
        self._env["PYTHONPATH"] = python_path(before)
        self.driver = Driver(plan, folder, lab)
        self.processes: dict[str, subprocess.Popen[Any]] = {}
        self.started_s: dict[int, float] = {}
        self.begun = 0.0

    def __enter__(self) -> Self:
        """Put the first faults in force and start every node that is not late.

        Raises:
            UsageError: a command cannot be started.
            LabError: a fault cannot be applied.
        """
        self.begun = time.monotonic()
        try:
            self.driver.start()
            self.poll()
        except BaseException:
            self.end(grace_s=0)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end(grace_s=0)

    def poll(self) -> bool:
        """Start what is due; True while a command runs or is still to come."""
        now_s = time.monotonic() - self.begun
        due = [command for delay_s, command in self._waiting if delay_s <= now_s]
        self._waiting = [entry for entry in self._waiting if entry[0] > now_s]
        for command in due:
            target = self._output(command)
            try:
                process = self._lab.popen(
                    command.node,
                    command.argv,
                    env={**self._env, **command.env},
                    cwd=self._cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=subprocess.STDOUT,
                )
            except OSError as error:
                raise UsageError(
                    "{program} cannot be started: {reason}", program=command.argv[0], reason=error.strerror
                ) from error
            self.processes[command.label] = process
            self.started_s[command.node] = time.time()
        return bool(self._waiting) or any(p.poll() is None for p in self.processes.values())

    def send(self, number: signal.Signals) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def end(self, *, grace_s: float) -> None:
        """SIGTERM, a wait, SIGKILL to the commands' process groups; then the driver's traces.  May be called twice.

        What sits in sessions of its own inside the nodes ends with the lab.
        """
        self._waiting.clear()
        try:
            if grace_s > 0:
                self.send(signal.SIGTERM)
                deadline = time.monotonic() + grace_s
                while time.monotonic() < deadline and any(p.poll() is None for p in self.processes.values()):
                    time.sleep(0.05)
        finally:
            self.driver.close()
            for process in self.processes.values():
                end_group(process)

    def truth(self) -> list[Injected]:
        return read_truth(self._folder)

    def problems(self) -> list[str]:
        """Mistakes of the injector or the driver: where there are any, nothing can be concluded from this job."""
        return [*problems(self._folder), *self.driver.errors]
