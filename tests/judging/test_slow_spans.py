"""What slowed a job for a good part of it is the verdict when it is over."""

from datetime import UTC, datetime

from msgspec.structs import replace

from allready.judging.latch import VerdictLatch
from allready.judging.loading import load
from allready.judging.report_builder import verdict_from
from allready.judging.slow_spans import SlowSpans
from allready.model import Confidence, Culprits, FaultClass, Finding, Severity
from tests.cases import cases


def finding(code: str = "SLW006", rank: int = 1) -> Finding:
    return Finding(
        code=code,
        severity=Severity.ERROR,
        fault_class=FaultClass.SLOW_COMP,
        message="slow",
        remedy="profile it",
        culprits=Culprits(ranks=(rank,)),
        confidence=Confidence.LIKELY,
    )


def standing(found: Finding | None) -> VerdictLatch:
    latch = VerdictLatch(load())
    if found is not None:
        latch.bring_back(found, verdict_from(found, detected=datetime.fromtimestamp(1.0, UTC), detect_s=None))
    return latch


def spans(*held: tuple[float, Finding | None]) -> SlowSpans:
    """What stood from which second on; the last one is the end."""
    book = SlowSpans()
    for wall_s, found in held:
        book.take([] if found is None else [found], standing(found), wall_s, is_moving=wall_s >= 10.0)
    return book


def test_the_share_of_the_time_counts_and_is_told() -> None:
    found = spans((0.0, None), (10.0, None), (20.0, finding()), (50.0, None), (60.0, None)).most()
    assert found is not None
    assert found[0].evidence[0].text == "so it was for 30 s of the 50 s in which the job made operations"
    assert found[1].detected_time is not None


@cases(
    "held",
    [
        [(10.0, None), (20.0, finding()), (25.0, None), (60.0, None)],  # a tenth
        [(10.0, None), (20.0, finding("LIV016")), (60.0, None)],  # no matter of pace
        [(1.0, finding()), (9.0, None)],  # the job had not begun
    ],
)
def test_little_of_the_time_and_other_faults_do_not(held: list[tuple[float, Finding | None]]) -> None:
    assert spans(*held).most() is None


def test_of_several_the_one_that_lasted_longest_counts() -> None:
    book = spans((10.0, finding(rank=1)), (20.0, finding(rank=2)), (50.0, finding(rank=1)), (55.0, None))
    found = book.most()
    assert found is not None
    assert found[0].culprits.ranks == (2,)
    assert "for 30 s of the 45 s" in found[0].evidence[0].text


def test_what_is_no_fault_is_kept_beside_the_verdict() -> None:
    """Seen: all ranks waited for their data in the whole job, and the report of the end did not say so."""
    book, info = SlowSpans(), replace(finding("SLW015"), severity=Severity.INFO)
    for wall_s in (10.0, 20.0, 50.0):
        book.take([info], standing(None), wall_s, is_moving=True)
    assert book.most() is None
    [kept] = book.besides()
    assert (kept.code, kept.evidence[0].text.startswith("so it was for 40 s of the 40 s")) == ("SLW015", True)
