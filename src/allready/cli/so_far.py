"""What is known while nodes are still awaited: said once, with what to do, instead of after the whole wait."""

from allready.messaging.narrator import Narrator
from allready.model import FaultClass, Report, Status
from allready.report.words import remedies, sentence
from allready.text.catalog import remedy_text

PATIENCE_S = 10.0
"""A node that has not come may still be on its way; other findings of the roll call do not go away by waiting."""


class SoFar:
    """One command.  `take` every report that is made while nodes are awaited."""

    def __init__(self, narrator: Narrator, language: str) -> None:
        self._narrator = narrator
        self._language = language
        self._said: set[object] = set()

    def take(self, report: Report) -> None:
        """Say the verdict that would stand if nobody else came, and its remedy; the same one only once."""
        verdict = report.verdict
        if report.status is not Status.WAITING or verdict is None:
            return
        key = (verdict.code, verdict.culprits)
        if key in self._said or (verdict.fault_class is FaultClass.START_ABSENT and report.duration_s < PATIENCE_S):
            return
        self._said.add(key)
        self._narrator.log("check.so_far", code=verdict.code, sentence=sentence(report, self._language))
        for step in remedies(report, self._language):
            self._narrator.log("check.so_far_remedy", remedy=remedy_text((step,), self._language))
