"""Faults that come again with every step: slow ranks, rotating imbalance, garbage collection."""

import gc
import random
import time
from typing import Any

from .types import StepEngine

PACES = {"slow", "slow_loader", "rotate", "gc_pause"}


def pause(duration_s: float, how: str) -> None:
    """Lose time asleep, or computing."""
    if how == "sleep":
        time.sleep(duration_s)
        return
    end = time.thread_time() + duration_s
    value = 0
    while time.thread_time() < end:
        value = (value * 31 + 7) % 1000003


class Pace:
    """What is done after each step."""

    def __init__(self, engine: StepEngine) -> None:
        self._engine = engine
        self._begun: dict[int, int] = {}
        self._base_s: dict[int, float] = {}
        self._heap: list[dict[int, str]] = []

    def is_in_force(self, fault: dict[str, Any]) -> bool:
        """Whether a fault has begun and not ended; begins it when it is due."""
        engine = self._engine
        rank = engine.rank()
        if rank is None or fault["rank"] not in {"all", rank} or engine.step < fault["step"]:
            return False
        if fault["id"] not in self._begun:
            self._begun[fault["id"]] = engine.step
            self._base_s[fault["id"]] = engine.period_s() or 0.0
            engine.truth.record(fault, rank, engine.step, period_s=engine.period_s())
        steps = int(fault.get("steps", 0))
        return steps == 0 or engine.step < self._begun[fault["id"]] + steps

    def after_step(self) -> None:
        for fault in self._engine.faults:
            if fault["kind"] in PACES and fault["kind"] != "slow_loader" and self.is_in_force(fault):
                getattr(self, f"_{fault['kind']}")(fault)

    def _slow(self, fault: dict[str, Any]) -> None:
        lost_s = float(fault.get("ms", 0)) / 1000 or float(fault.get("percent", 0)) / 100 * self._base_s[fault["id"]]
        pause(lost_s, str(fault.get("how", "sleep")))

    def _rotate(self, fault: dict[str, Any]) -> None:
        world, step = self._engine.world_size() or 1, self._engine.step
        # All ranks draw the same: the order is a shuffle of all ranks, then another one.
        order = list(range(world))
        random.Random(f"{self._engine.seed} {fault['id']} {step // world}").shuffle(order)  # noqa: S311 - no secret
        if order[step % world] == self._engine.rank():
            pause(float(fault["ms"]) / 1000, str(fault.get("how", "sleep")))

    def _gc_pause(self, fault: dict[str, Any]) -> None:
        if not self._heap:
            self._heap = [{i: str(i)} for i in range(int(fault.get("objects", 300_000)))]
        world, step = self._engine.world_size() or 1, self._engine.step
        every = int(fault.get("every", 5))
        chance = random.Random(f"{self._engine.seed} {fault['id']} {step}")  # noqa: S311 - no secret
        if step % every == 0 and chance.randrange(world) == self._engine.rank():
            gc.collect()
