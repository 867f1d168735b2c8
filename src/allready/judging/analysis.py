"""What several rules ask of the same evidence, worked out once for each judgement."""

from collections.abc import Callable
from typing import Any, TypeVar

from allready.model import Fleet, Live, PerNode, RunEvidence

Answer = TypeVar("Answer")
Fact = TypeVar("Fact")


class Analysis:
    """One judgement's evidence, and the answers that were derived from it so far.

    The engine makes it; a rule asks for it by a parameter of this type.  `run` is empty where no run left anything,
    `live` None where no job runs.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.has_run = fleet.run_evidence is not None
        self.run = fleet.run_evidence if fleet.run_evidence is not None else RunEvidence()
        self.live: Live | None = fleet.live
        self.is_linted = fleet.settings is not None
        self.world, self.roll, self.reach, self.collectives = fleet.world, fleet.roll, fleet.reach, fleet.collectives
        self._fleet = fleet
        self._answers: dict[Callable[..., Any], Any] = {}

    def facts(self, kind: type[Fact]) -> PerNode[Fact]:
        """That fact of every node that has it; here its absence is not worth a "not checked"."""
        return PerNode(self._fleet.per_node(kind)[0])

    def of(self, question: Callable[["Analysis"], Answer]) -> Answer:
        """The answer of a function of this analysis; it is called once, however many rules ask."""
        if question not in self._answers:
            self._answers[question] = question(self)
        answer: Answer = self._answers[question]
        return answer
