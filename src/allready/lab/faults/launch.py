"""Faults of the launch itself; they only mean something in a scenario, which starts the nodes' commands."""

from dataclasses import dataclass
from typing import ClassVar

from allready.lab.faults.base import Fault


@dataclass(frozen=True, kw_only=True)
class DoNotStart(Fault):
    """The command of `node` is never started."""

    kind: ClassVar[str] = "do_not_start"
    slot: ClassVar[str] = "launch"
    scenario_only: ClassVar[bool] = True
    node: int  # the node that stays away


@dataclass(frozen=True, kw_only=True)
class StartLate(Fault):
    """The command of `node` starts `delay_s` after the others."""

    kind: ClassVar[str] = "start_late"
    slot: ClassVar[str] = "launch"
    scenario_only: ClassVar[bool] = True
    node: int  # the late node
    delay_s: float  # seconds

    def problem(self) -> str | None:
        return None if 0 < self.delay_s <= 86_400 else "delay_s is above 0, at most 86400"
