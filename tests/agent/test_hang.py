"""The mark by which ranks learn that the verdict says that the job hangs."""

import contextlib
import os
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from allready.agent.hang import HangMark, is_hang
from allready.live.beacon.names import ASLEEP, HANGS
from allready.model import Confidence, Culprits, FaultClass, Finding, Report, Severity, Status
from tests.judging.test_differences import report


def test_the_mark_is_there_while_ranks_wait_for_a_fault_that_is_known_for_sure(tmp_path: Path) -> None:
    mark, path = HangMark(tmp_path), tmp_path / "hung"
    hangs = report(FaultClass.CPU_STUCK)
    assert hangs.verdict is not None
    mark.show(hangs)
    assert path.exists()
    made_ns = path.stat().st_mtime_ns
    mark.show(hangs)  # said again
    assert path.stat().st_mtime_ns == made_ns
    other = replace(hangs, verdict=replace(hangs.verdict, culprits=Culprits(ranks=(7,))))
    os.utime(path, ns=(made_ns - 10**9, made_ns - 10**9))
    mark.show(other)  # another rank hangs, and nothing was right in between
    assert path.stat().st_mtime_ns >= made_ns
    os.utime(path, ns=(made_ns - 10**9, made_ns - 10**9))
    assert other.verdict is not None
    mark.show(replace(other, verdict=replace(other.verdict, detected_time="2026-01-01T00:00:20.000")))  # once more
    assert path.stat().st_mtime_ns >= made_ns
    for over in (
        replace(hangs, status=Status.HEALTHY, verdict=None),
        report(FaultClass.DEAD),
        report(FaultClass.SLOW_COMP),
        replace(hangs, verdict=replace(hangs.verdict, confidence=Confidence.POSSIBLE)),
    ):
        mark.show(hangs)
        assert path.exists()
        mark.show(over)
        assert not path.exists()
    assert is_hang(report(FaultClass.DEAD))
    assert not is_hang(report(FaultClass.SLOW_COMP))


def waits_for_one(kind: str) -> Report:
    """All wait for rank 1, which may end by itself."""
    waits = report(FaultClass.CPU_STUCK, ranks=(1,))
    assert waits.verdict is not None
    finding = Finding(
        code=waits.verdict.code,
        severity=Severity.WARNING,
        fault_class=waits.verdict.fault_class,
        confidence=Confidence.POSSIBLE,
        culprits=waits.verdict.culprits,
        message="sleeps",
        remedy="look",
        values={"kind": kind},
    )
    verdict = replace(waits.verdict, confidence=Confidence.POSSIBLE)
    return replace(waits, status=Status.WAITING, verdict=verdict, findings=(finding,))


def test_ranks_learn_that_all_wait_for_one_that_sleeps_and_not_that_they_wait_for_one_that_works(
    tmp_path: Path,
) -> None:
    mark, path = HangMark(tmp_path), tmp_path / "hung"
    mark.show(waits_for_one("sleep"))
    assert path.read_text() == ASLEEP
    mark.show(waits_for_one("work"))
    assert not path.exists()
    mark.show(waits_for_one("sleep work"))  # two ranks: one works
    assert not path.exists()
    mark.show(waits_for_one("sleep"))
    mark.show(report(FaultClass.CPU_STUCK, ranks=(1,)))  # it lasted for so long that it is a fault
    assert path.read_text() == HANGS


def test_the_mark_holds_for_how_long_the_user_lets_a_wait_last(tmp_path: Path) -> None:
    mark, path = HangMark(tmp_path, asked_s=7.5), tmp_path / "hung"
    mark.show(waits_for_one("sleep"))
    assert path.read_text() == f"{ASLEEP} 7.5"
    mark.show(report(FaultClass.CPU_STUCK, ranks=(1,)))
    assert path.read_text() == HANGS


@pytest.mark.thorough
def test_the_mark_is_never_there_without_its_word(tmp_path: Path) -> None:
    mark, path = HangMark(tmp_path), tmp_path / "hung"
    seen, ends = set(), threading.Event()

    def read() -> None:
        while not ends.is_set():
            with contextlib.suppress(FileNotFoundError):
                seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(1000):
        mark.show(waits_for_one("sleep"))
        mark.show(report(FaultClass.CPU_STUCK, ranks=(1,)))
        mark.show(report(FaultClass.DEAD))
    ends.set()
    reader.join()
    assert seen
    assert seen <= {ASLEEP, HANGS}
