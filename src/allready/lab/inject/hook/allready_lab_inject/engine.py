"""Counts the job's steps and strikes when a fault is due.

A step is one iteration of the training loop, as something general sees it: a call of `Optimizer.step`; without an
optimizer a collective issued from Python; under JAX a call of a compiled function over several processes; or a call of
a function that the user names.  "Step k" begins when k of them are complete.
"""

import atexit
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from . import actions, jax_side, pace, profile, torch_side
from .calls import HookedCall, Rewriter
from .imports import AfterImport
from .truth import Truth
from .types import Fault

GIVE_UP_STEPS = 5
"""A fault in a collective waits so many steps for one that it can change."""


class Engine:
    """All faults of one rank.  `rank` None: learned once the job has joined (torch or JAX has it)."""

    def __init__(self, plan: dict[str, Any], faults: list[Fault], rank: int | None) -> None:
        self.faults = faults
        self.seed = int(plan.get("seed", 0))
        self.truth_folder = str(plan["folder"])
        self.truth = Truth(Path(self.truth_folder))
        self._rank = rank
        self._step_of = str(plan.get("step_of", "auto"))
        self._counts = {"optimizer": 0, "collective": 0, "jit": 0, "function": 0}
        self.has_optimizer = False
        self._lock = threading.RLock()
        self._local = threading.local()
        self._actions = [f for f in faults if f["kind"] in actions.ACTIONS]
        self._paces = [f for f in faults if f["kind"] in pace.PACES]
        self._calls = [f for f in faults if f["layer"] == "collective"]
        self._rewriter = Rewriter(self)
        self._had_before: dict[int, bool] = {}
        self._last_step_s: float | None = None
        self._last_cpu_s = 0.0
        self._periods: list[float] = []
        self._cpu_times: list[float] = []
        self.pace = pace.Pace(self)

    def install(self) -> None:
        """Patch what is needed, once it is imported; nothing is imported for it."""
        atexit.register(self._at_exit)
        AfterImport({"torch": self._after_torch, "jax": self._after_jax}).install()
        if ":" in self._step_of:
            profile.install(self._step_of, lambda: self.count("function"))

    def _after_torch(self) -> None:
        torch_side.install(self, wants_calls=self._wants_calls)
        self._strike_at_import("torch")

    def _after_jax(self) -> None:
        jax_side.install(self)
        self._strike_at_import("jax")

    @property
    def _wants_calls(self) -> bool:
        """Whether the collectives of this rank have to be wrapped: only then, for a wrapped call is one frame more."""
        in_a_call = any(f.get("where") in {"op", "inside"} for f in self.faults)
        at_the_start = any(f.get("step") == 0 for f in self.faults)
        return bool(self._calls) or in_a_call or at_the_start or self._step_of in {"auto", "collective"}

    # --- who and when

    def rank(self) -> int | None:
        """This process's rank, once it is known."""
        if self._rank is None:
            self._rank = torch_side.rank() if torch_side.rank() is not None else jax_side.rank()
        return self._rank

    def world_size(self) -> int | None:
        """Number of ranks, once the job has joined."""
        size = torch_side.world_size()
        return size if size is not None else jax_side.world_size()

    @property
    def step(self) -> int:
        """Completed steps."""
        source = self._step_of
        if source == "auto":
            source = "optimizer" if self.has_optimizer else "jit" if self._counts["jit"] else "collective"
        return self._counts["function" if ":" in source else source]

    def period_s(self) -> float | None:
        """Median duration of the last steps; None before the third."""
        return statistics.median(self._periods[-20:]) if len(self._periods) >= 2 else None

    def cpu_s(self) -> float | None:
        """Median processor time of the last steps, of all threads; None before the third."""
        return statistics.median(self._cpu_times[-20:]) if len(self._cpu_times) >= 2 else None

    def count(self, source: str) -> None:
        """One optimizer step, collective, compiled call or function call is complete; strikes what is due now."""
        before = self.step
        self._counts[source] += 1
        if self.step <= before:
            return
        now = time.monotonic()
        if self._last_step_s is not None:
            self._periods.append(now - self._last_step_s)
            self._cpu_times.append(time.process_time() - self._last_cpu_s)
        self.strike("step")
        with self._lock:
            late = [f for f in self._calls if self.step > f["step"] + GIVE_UP_STEPS and self._is_due(f)]
        for fault in late:
            self.give_up(fault, f"no call from Python that it could change in {GIVE_UP_STEPS} steps")
        self.pace.after_step()
        self._last_step_s, self._last_cpu_s = time.monotonic(), time.process_time()

    def _is_mine(self, fault: Fault) -> bool:
        return fault["rank"] in {"all", self.rank()}

    def _is_due(self, fault: Fault) -> bool:
        if fault["at"] == "import" or not self._is_mine(fault) or self.step < fault["step"]:
            return False
        rank = self.rank()
        if rank is None:
            return False
        if fault["id"] not in self._had_before:  # by an earlier attempt of this rank
            self._had_before[fault["id"]] = self.truth.was_recorded(fault["id"], rank)
        return not self._had_before[fault["id"]]

    # --- what happens to the process

    def _strike_at_import(self, module: str) -> None:
        for fault in [f for f in self._actions if f["at"] == "import" and f.get("module", "torch") == module]:
            rank = self.rank()
            if rank is None or not self._is_mine(fault) or self.truth.was_recorded(fault["id"], rank):
                continue
            self._actions.remove(fault)
            self._act(fault, rank)

    def strike(self, place: str) -> None:
        """Carry out the faults that are due at this place: "step" (between calls), "op" (before a collective)."""
        for fault in list(self._actions):
            where = fault.get("where", "step")
            at_the_start = place == "op" and fault["step"] == 0 and where == "step"
            if (where != place and not at_the_start) or not self._is_due(fault):
                continue
            self._actions.remove(fault)
            rank = self.rank()
            assert rank is not None
            self._act(fault, rank)

    def strike_inside(self) -> None:
        """A collective is entered now: what is to strike inside it does so a moment later, from another thread."""
        for fault in list(self._actions):
            if fault.get("where") == "inside" and self._is_due(fault):
                self._actions.remove(fault)
                rank = self.rank()
                assert rank is not None
                self._later(max(float(fault.get("delay_s", 0)), 0.001), fault, rank)

    def _act(self, fault: Fault, rank: int) -> None:
        delay_s = float(fault.get("delay_s", 0))
        if delay_s > 0:
            self._later(delay_s, fault, rank)
        else:
            actions.ACTIONS[fault["kind"]](self, fault, rank)

    def _later(self, delay_s: float, fault: Fault, rank: int) -> None:
        timer = threading.Timer(delay_s, lambda: actions.ACTIONS[fault["kind"]](self, fault, rank))
        timer.daemon = True
        timer.start()

    # --- what happens to collectives

    @property
    def is_inside(self) -> bool:
        """Whether this thread is in a wrapped call already: collectives are made of others."""
        return getattr(self._local, "depth", 0) > 0

    def enter(self, call: HookedCall) -> list[HookedCall]:
        """A collective begins: what to call instead, in this order."""
        self.strike("op")
        instead = self._rewritten(call)
        self.strike_inside()
        self._local.depth = 1
        return instead

    def leave(self, *, completed: bool) -> None:
        """It is over."""
        self._local.depth = 0
        if completed:
            self.count("collective")

    def _rewritten(self, call: HookedCall) -> list[HookedCall]:
        with self._lock:
            for fault in list(self._calls):
                if not self._is_due(fault):
                    continue
                instead = self._rewriter.rewrite(fault, call)
                if instead is not None:
                    if not self._rewriter.is_waiting(fault):
                        self._calls.remove(fault)
                    return instead
        return [call]

    def due_call_fault(self, kinds: set[str]) -> Fault | None:
        """A fault of these kinds that is due and not carried out; for DDP, whose collectives are not Python's."""
        with self._lock:
            return next((f for f in self._calls if f["kind"] in kinds and not f.get("op") and self._is_due(f)), None)

    def done_with(self, fault: Fault) -> None:
        """A fault in a collective is carried out."""
        with self._lock:
            if fault in self._calls:
                self._calls.remove(fault)

    def give_up(self, fault: Fault, why: str) -> None:
        """A fault in a collective cannot be had in this job."""
        self.done_with(fault)
        rank = self.rank()
        if rank is not None:
            self.truth.give_up(fault, rank, self.step, why)

    def is_in_force(self, fault: Fault) -> bool:
        """Whether a fault of pace has begun and not ended."""
        return self.pace.is_in_force(fault)

    def _at_exit(self) -> None:
        for fault in [*self._calls, *self._actions, *self._paces]:
            rank = self.rank()
            if rank is not None and self._is_mine(fault):
                self.truth.give_up(fault, rank, self.step, f"the rank ended in step {self.step}, before it was due")
