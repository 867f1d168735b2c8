"""What the parts of the engine ask of it."""

from typing import Any, Protocol

from .truth import Truth

Fault = dict[str, Any]


class Steps(Protocol):
    """Where one rank of the job stands, and what is to happen to it; `engine.Engine` implements it."""

    faults: list[Fault]
    seed: int
    truth: Truth
    truth_folder: str
    has_optimizer: bool

    @property
    def step(self) -> int: ...

    @property
    def is_inside(self) -> bool: ...

    def rank(self) -> int | None: ...

    def world_size(self) -> int | None: ...

    def period_s(self) -> float | None: ...

    def count(self, source: str) -> None: ...

    def strike(self, place: str) -> None: ...

    def strike_inside(self) -> None: ...

    def enter(self, call: Any) -> list[Any]: ...

    def leave(self, *, completed: bool) -> None: ...

    def due_call_fault(self, kinds: set[str]) -> Fault | None: ...

    def done_with(self, fault: Fault) -> None: ...

    def give_up(self, fault: Fault, why: str) -> None: ...

    def is_in_force(self, fault: Fault) -> bool: ...
