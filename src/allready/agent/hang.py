"""Whether the verdict says that the job hangs, or waits for ranks that sleep, and a file that tells the ranks of this
node so.
"""

import logging
from pathlib import Path

from allready.judging.stall import StallKind
from allready.live.beacon.names import ASLEEP, HANGS, HUNG
from allready.model import Confidence, FaultClass, Report, Status
from allready.report.json_report import write_atomic

log = logging.getLogger(__name__)

SLOW = frozenset({FaultClass.SLOW_COMP, FaultClass.SLOW_COMM, FaultClass.SLOW_MIXED, FaultClass.SLOW_NOCULPRIT})
_WAITS = frozenset({
    FaultClass.CPU_STUCK, FaultClass.CPU_BUSY, FaultClass.DESYNC_FLOW, FaultClass.DESYNC_ARGS, FaultClass.HW_HANG,
    FaultClass.NET_BROKEN,
})  # fmt: skip
"""Of a fault for which ranks still wait; where a process has ended its connections say so."""


def is_hang(report: Report | None) -> bool:
    """Whether the job makes no progress any more, as far as is known for sure enough to act on it."""
    return (
        report is not None
        and report.verdict is not None
        and report.status is Status.FAULT
        and report.verdict.confidence is not Confidence.POSSIBLE
        and report.verdict.fault_class not in SLOW
    )


def is_asleep(report: Report) -> bool:
    """Whether all wait for ranks that sleep: it may be in order, and only the ranks know how long they usually wait."""
    verdict = report.verdict
    return (
        verdict is not None
        and report.status is Status.WAITING
        and any(
            (f.code, f.culprits) == (verdict.code, verdict.culprits) and f.values.get("kind") == StallKind.SLEEP
            for f in report.findings
        )
    )


class HangMark:
    """The file; made when a hang begins, made anew when another one takes its place or the same rank hangs once more,
    removed when none is left.

    Args:
        run_dir: the folder that it lies in.
        asked_s: for how long a wait may last that may end by itself, where the user said so.
    """

    def __init__(self, run_dir: Path, *, asked_s: float | None = None) -> None:
        self._path = run_dir / HUNG
        self._asleep = ASLEEP if asked_s is None else f"{ASLEEP} {asked_s}"
        self._shown: object = None

    def show(self, report: Report) -> None:
        """What the newest verdict says."""
        verdict = report.verdict
        waits = verdict is not None and verdict.fault_class in _WAITS and is_hang(report)
        text = HANGS if waits else self._asleep if is_asleep(report) else None
        shown = None
        if text is not None and verdict is not None:
            shown = (text, verdict.code, verdict.culprits, verdict.detected_time)
        if shown == self._shown:
            return
        self._shown = shown
        try:
            if text is not None:
                write_atomic(self._path, text.encode(), is_lasting=False, is_own=True)
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.debug("the ranks were not notified of a hang: %s", error)
