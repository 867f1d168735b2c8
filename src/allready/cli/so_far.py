"""What is known while nodes are still awaited: said once, with what to do, instead of after the whole wait."""

from collections.abc import Iterable

from allready.messaging.narrator import Narrator
from allready.model import FaultClass, Remedy, Report, Status
from allready.report.words import phrase, remedies, sentence, steps
from allready.text.catalog import remedy_text

PATIENCE_S = 10.0
"""A node that has not come may still be on its way; other findings of the roll call do not go away by waiting."""

MAY_KEEP_AWAY = {FaultClass.START_NAME, FaultClass.START_PATH}
"""What is wrong in these ways on nodes that are here may be why others do not come."""


class SoFar:
    """One command.  `take` every report that is made while nodes are awaited."""

    def __init__(self, narrator: Narrator, language: str) -> None:
        self._narrator = narrator
        self._language = language
        self._said: set[object] = set()

    def take(self, report: Report) -> None:
        """Say the verdict that would stand if no further node came, and its remedy; the same one only once."""
        verdict = report.verdict
        if report.status is not Status.WAITING or verdict is None:
            return
        key = (verdict.code, verdict.culprits)
        if key in self._said or (verdict.fault_class is FaultClass.START_ABSENT and report.duration_s < PATIENCE_S):
            return
        self._said.add(key)
        self._say(verdict.code, sentence(report, self._language), remedies(report, self._language))
        for finding in report.findings if verdict.fault_class is FaultClass.START_ABSENT else ():
            if finding.fault_class in MAY_KEEP_AWAY and finding.code != verdict.code:
                self._say(finding.code, phrase(finding, "message", self._language), steps(finding, self._language))

    def _say(self, code: str, text: str, remedy: Iterable[Remedy]) -> None:
        self._narrator.log("check.so_far", code=code, sentence=text)
        for step in remedy:
            self._narrator.log("check.so_far_remedy", remedy=remedy_text((step,), self._language))
