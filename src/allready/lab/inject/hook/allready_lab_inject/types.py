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
    def step(self) -> int:
        """Completed steps."""

    @property
    def is_inside(self) -> bool:
        """Whether this thread is in a wrapped call already."""

    def rank(self) -> int | None:
        """This process's rank, once it is known."""

    def world_size(self) -> int | None:
        """Number of ranks, once the job has joined."""

    def period_s(self) -> float | None:
        """Median duration of the last steps."""

    def count(self, source: str) -> None:
        """One optimizer step, collective, compiled call or function call is complete."""

    def strike(self, place: str) -> None:
        """Carry out the faults that are due at this place."""

    def strike_inside(self) -> None:
        """A collective is entered now."""

    def enter(self, call: Any) -> list[Any]:
        """A collective begins: what to call instead."""

    def leave(self, *, completed: bool) -> None:
        """It is over."""

    def due_call_fault(self, kinds: set[str]) -> Fault | None:
        """A fault of these kinds that is due and not carried out."""

    def done_with(self, fault: Fault) -> None:
        """A fault in a collective is carried out."""

    def give_up(self, fault: Fault, why: str) -> None:
        """A fault in a collective cannot be had in this job."""

    def is_in_force(self, fault: Fault) -> bool:
        """Whether a fault of pace has begun and not ended."""
