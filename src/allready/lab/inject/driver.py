"""What is done from outside the ranks: the network, pulses, the end of a pause, a noisy neighbour, the tidying up."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allready.errors import LabError
from allready.lab.inject.plan import FaultPlan, NetFault, RankFault
from allready.lab.inject.truth import Injected, read_truth, write_truth
from allready.lab.lab import AppliedFault, Lab
from allready.proc.kill import send_signal
from allready.proc.process import ProcessId, identify, is_running

POLL_EVERY_S = 0.02
_SPIN = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end:\n    pass\n"
_MAX_SPIN_S = 900.0


class Driver:
    """A thread beside the job; `close` lifts every fault, lets stopped ranks go on, and removes what was made."""

    def __init__(self, plan: FaultPlan, folder: Path, lab: Lab | None) -> None:
        """`lab` None: a job without a lab, which then has no faults of the network."""
        self._plan, self._folder, self._lab = plan, folder, lab
        self._ranks: dict[int, RankFault] = {f.id: f for f in plan.rank_faults}
        self._nets: dict[int, NetFault] = {f.id: f for f in plan.net_faults if not f.fault.scenario_only}
        self._applied: dict[int, AppliedFault] = {}
        self._seen: set[tuple[int, int | None]] = set()
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._spinners: list[subprocess.Popen[bytes]] = []
        self._stopped: dict[int, ProcessId] = {}
        self._end = threading.Event()
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._run, name="allready-lab-driver", daemon=True)

    def start(self) -> None:
        """Begin; faults with `start_s` 0 and no step are in force when this returns."""
        for fault in self._nets.values():
            if fault.step is None and fault.after_s == 0:
                self._apply(fault, None)
            elif fault.step is None:
                self._later(fault.after_s, functools.partial(self._apply, fault, None))
        self._thread.start()

    def close(self) -> None:
        """End; nothing of this driver is left, and every rank that it stopped goes on."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join(20)
        for stopped in self._stopped.values():
            send_signal(stopped, signal.SIGCONT)
        for spinner in self._spinners:
            spinner.kill()
            spinner.wait()
        for applied in self._applied.values():
            applied.undo()
        self._applied.clear()

    def remove_groups(self) -> None:
        """Remove the control groups that ranks made for themselves; after the job's end, for used ones stay."""
        deadline = time.monotonic() + 5
        for group in {Path(path) for truth in read_truth(self._folder) for path in truth.cleanup}:
            if not group.name.startswith("allready-lab-"):
                continue
            while group.is_dir():
                try:
                    group.rmdir()
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise LabError(
                            "{group} cannot be removed: {error}", group=group, error=error.strerror
                        ) from error
                    time.sleep(0.05)

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + delay_s, call))

    def _run(self) -> None:
        while not self._end.wait(POLL_EVERY_S):
            try:
                self._poll()
                now = time.monotonic()
                due = [entry for entry in self._due if entry[0] <= now]
                self._due = [entry for entry in self._due if entry[0] > now]
                for _, call in due:
                    call()
            except (LabError, OSError, subprocess.SubprocessError) as error:
                self.errors.append(str(error))

    def _poll(self) -> None:
        for truth in read_truth(self._folder):
            key = (truth.id, truth.rank)
            if key in self._seen or truth.status != "injected" or truth.rank is None:
                continue
            self._seen.add(key)
            if truth.id in self._nets and truth.kind == "mark":
                self._apply(self._nets[truth.id], truth)
            elif truth.id in self._ranks:
                self._rank_began(self._ranks[truth.id], truth)

    # --- ranks

    def _rank_began(self, fault: RankFault, truth: Injected) -> None:
        process = identify(truth.pid) if truth.pid else None
        if process is None:
            return
        duration_s = float(fault.values.get("duration_s", 0))
        if fault.kind == "sigstop":
            self._stopped[process.pid] = process
            if duration_s:
                self._later(duration_s, lambda: self._go_on(process))
        elif fault.kind == "pulses":
            until = time.monotonic() + (duration_s or 1e9)
            stop_s, period_s = float(fault.values["stop_ms"]) / 1000, float(fault.values["period_ms"]) / 1000
            self._pulse(process, stop_s, max(period_s, stop_s + 0.01), until)
        elif fault.kind == "neighbour" and truth.cpu is not None:
            for _ in range(int(fault.values["processes"])):
                self._spin(truth.cpu, duration_s or _MAX_SPIN_S)

    def _go_on(self, process: ProcessId) -> None:
        send_signal(process, signal.SIGCONT)
        self._stopped.pop(process.pid, None)

    def _pulse(self, process: ProcessId, stop_s: float, period_s: float, until: float) -> None:
        if time.monotonic() >= until or not is_running(process):
            return
        self._stopped[process.pid] = process
        send_signal(process, signal.SIGSTOP)
        self._later(stop_s, lambda: self._go_on(process))
        self._later(period_s, lambda: self._pulse(process, stop_s, period_s, until))

    def _spin(self, cpu: int, duration_s: float) -> None:
        spinner = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _SPIN, str(duration_s)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._spinners.append(spinner)
        os.sched_setaffinity(spinner.pid, {cpu})

    # --- the lab

    def _apply(self, fault: NetFault, truth: Injected | None, times: int = 1) -> None:
        if self._lab is None:
            raise LabError("fault {kind} needs a lab", kind=fault.fault.kind)
        details: dict[str, Any] = {"step": truth.step if truth else None, "host": "lab"}
        now_s = time.time()
        self._applied[fault.id] = self._lab.apply(fault.fault)
        if times == 1:
            injected = Injected(
                id=fault.id, kind=fault.fault.kind, rank=None, status="injected", injected_s=now_s, **details
            )
            write_truth(self._folder, injected)
        if fault.lasts_s is not None:
            self._later(fault.lasts_s, lambda: self._lift(fault, truth, times))

    def _lift(self, fault: NetFault, truth: Injected | None, times: int) -> None:
        applied = self._applied.pop(fault.id, None)
        if applied is not None:
            applied.undo()
        if times < fault.repeat:
            self._later(fault.up_s, lambda: self._apply(fault, truth, times + 1))
