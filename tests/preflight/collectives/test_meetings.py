"""What a pair and a group are after they met several times."""

from types import SimpleNamespace
from typing import Any

import pytest

from allready.model import GroupPoint, PairPoint
from allready.preflight.collectives.meetings import MeetingError, Meetings
from allready.preflight.collectives.wire import Rail

RAIL = Rail(name="", members=(0, 1))


def made(told: list[dict[str, Any]], device: str = "cpu") -> Meetings:
    """Those of rank 0."""
    orders = SimpleNamespace(rank=0, members=(0, 1), sizes=[4_000_000])
    side = SimpleNamespace(orders=orders, send=lambda _event, pair: told.append(pair))
    stream = SimpleNamespace(synchronize=lambda: None)
    cuda = SimpleNamespace(current_stream=lambda _device: stream)
    torch = SimpleNamespace(zeros=lambda *_, **__: None, float32=None, cuda=cuda)
    return Meetings(torch, None, side, None, SimpleNamespace(type=device))  # type: ignore[arg-type]


def met(monkeypatch: pytest.MonkeyPatch, *seconds: float | None) -> PairPoint:
    """What rank 0 tells last of the pair 0 and 1 after these meetings; None: nothing came through."""
    told: list[dict[str, Any]] = []
    meetings = made(told)
    left = list(seconds)

    def both_ways(*_: object, **__: object) -> tuple[list[float], float]:
        took_s = left.pop(0)
        if took_s is None:
            raise MeetingError("not completed after 10 s")
        return [took_s], 0.0

    monkeypatch.setattr(meetings, "_connect", lambda *_: None)
    monkeypatch.setattr(meetings, "_both_ways", both_ways)
    for _ in seconds:
        meetings._pair(RAIL, 0, 1)
    return PairPoint(**told[-1])


def test_a_pair_that_fails_after_it_worked_keeps_its_rate_and_says_that_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seconds in ((0.004, None), (None, 0.004)):
        point = met(monkeypatch, *seconds)
        assert point.gb_per_s == pytest.approx(1.0)
        assert (point.num_measured, point.num_failed) == (2, 1)
        assert point.error.endswith("not completed after 10 s")
        assert point.latency_s == 0.0
    point = met(monkeypatch, 0.004, None, 0.004, None)
    assert (point.num_measured, point.num_failed) == (4, 2)


def test_a_pair_that_never_works_has_no_rate_and_one_that_always_does_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = met(monkeypatch, None, None)
    assert (point.gb_per_s, point.num_measured, point.num_failed, point.latency_s) == (None, 2, 2, None)
    point = met(monkeypatch, 0.004, 0.002)
    assert (point.num_measured, point.num_failed, point.error) == (2, 0, "")
    assert point.gb_per_s == pytest.approx(2.0)


def test_a_group_counts_the_passes_that_failed_and_keeps_the_reason_of_the_last() -> None:
    def once(rate: float | None, error: str = "") -> GroupPoint:
        return GroupPoint(round=1, members=(2, 3), size_bytes=1, gb_per_s=rate, error=error)

    merged = Meetings._merged([once(None, "reset"), once(8.0), once(None, "timed out"), once(9.0)], 8.5)
    assert (merged.gb_per_s, merged.num_measured, merged.num_failed, merged.error) == (8.5, 4, 2, "timed out")
    merged = Meetings._merged([once(8.0), once(9.0)], 8.5)
    assert (merged.num_failed, merged.error) == (0, "")


def test_on_a_gpu_a_short_operation_is_waited_for_without_a_sleep_and_one_that_never_ends_for_10_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, slept, aborted = [0.0], [0], [0]

    def sleep(seconds: float) -> None:
        slept[0] += 1
        now_s[0] += 100 * seconds

    def asked(ends_at_s: float) -> Any:
        def is_completed() -> bool:
            now_s[0] += 1e-5
            return now_s[0] >= ends_at_s

        return SimpleNamespace(is_completed=is_completed, wait=lambda: None)

    monkeypatch.setattr(
        "allready.preflight.collectives.meetings.time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep)
    )
    group = SimpleNamespace(abort=lambda: aborted.append(1))
    meetings = made([], "cuda")
    meetings._finish(group, asked(5e-4))
    assert slept == [0]
    meetings._finish(group, asked(now_s[0] + 0.1))
    assert slept[0] > 0
    began_s = now_s[0]
    with pytest.raises(MeetingError, match="10 s"):
        meetings._finish(group, asked(1e9))
    assert 10 <= now_s[0] - began_s < 10.1
    assert aborted == [0, 1]
