"""The course of a job that the report shows: iterations, their time, who was late."""

import pytest

from allready.live.monitor.course import MAX_POINTS, CourseBook
from allready.live.monitor.pace import PaceBook
from allready.model import JobCourse, NodeStatus
from tests.live.pace.test_pace_book import BEGIN, word

STEP_S = 0.1


def course_of(
    num_s: int, *, late_s: float = 0.0, digests: tuple[int, ...] = (7,), slow_from_s: float = 1e9
) -> JobCourse:
    """Of two ranks that tell their operations every two seconds for so long; rank 1 is late."""
    pace, made = PaceBook(), CourseBook()
    at_s, number = BEGIN, 0
    for second in range(2, num_s + 1, 2):
        created = []
        while at_s < BEGIN + second:
            created.append(at_s)
            at_s += STEP_S * (3 if at_s - BEGIN >= slow_from_s else 1)
        each = tuple(digests[(number + i) % len(digests)] for i in range(len(created)))
        told = {0: created, 1: [t + late_s for t in created]}
        one = word(0, told, first=number, digests=dict.fromkeys(told, each), members=(0, 1))
        number += len(created)
        pace.add(one)
        made.take(pace, one, BEGIN + second)
    found = made.result()
    assert found is not None
    return found


def test_iterations_are_counted_and_their_time_is_known() -> None:
    found = course_of(60)
    assert found.has_iterations
    assert found.num_iterations == pytest.approx(600, abs=12)
    assert found.period_s == pytest.approx(STEP_S, rel=0.02)
    assert len(found.curve_s) >= 50


def test_iterations_that_another_rank_told_first_are_counted_once() -> None:
    """The second node speaks first, and the curve is drawn by the first rank as soon as it is known."""
    pace, made = PaceBook(), CourseBook()
    words = [(second, 1) for second in (2, 4, 6)] + [(second, 0) for second in (2, 4, 6)]
    words += [(second, rank) for second in range(8, 20, 2) for rank in (0, 1)]
    for at, (second, rank) in enumerate(words):
        created = [BEGIN + second - 2 + STEP_S * i for i in range(20)]
        one = word(rank, {rank: created}, first=10 * (second - 2), members=(0, 1))
        pace.add(one)
        made.take(pace, one, BEGIN + 100 + at)
    found = made.result()
    assert found is not None
    assert found.num_iterations == pytest.approx(180, abs=10)


def test_an_iteration_of_several_operations_counts_once() -> None:
    found = course_of(60, digests=(1, 2, 3, 4))
    assert found.num_iterations == pytest.approx(150, abs=4)
    assert found.period_s == pytest.approx(4 * STEP_S, rel=0.02)


def test_the_curve_shows_from_when_on_iterations_take_longer() -> None:
    found = course_of(60, slow_from_s=40)
    before = [each for at, each in found.curve_s if at < 39]
    after = [each for at, each in found.curve_s if at > 42]
    assert max(before) < 1.2 * STEP_S
    assert min(after) > 2.5 * STEP_S
    assert found.period_s == pytest.approx(STEP_S, rel=0.05)


def test_who_was_late_comes_first_with_its_share() -> None:
    found = course_of(60, late_s=0.04)
    first = found.ranks[0]
    assert (first.rank, found.ranks[1].rank) == (1, 0)
    assert first.late_s == pytest.approx(0.04, abs=0.002)
    assert first.waited_share == pytest.approx(0.4, abs=0.05)


def test_a_long_job_has_a_bounded_curve_over_all_of_it() -> None:
    found = course_of(1200)
    assert MAX_POINTS / 3 < len(found.curve_s) <= MAX_POINTS + 1
    assert found.curve_s[0][0] < 60
    assert found.curve_s[-1][0] > 1150
    assert found.num_iterations == pytest.approx(12_000, rel=0.02)


def test_operations_that_do_not_repeat_are_counted_one_by_one() -> None:
    found = course_of(60, digests=tuple(range(1, 1000)))
    assert not found.has_iterations
    assert found.num_iterations == pytest.approx(600, abs=12)


def test_without_operations_there_is_no_course() -> None:
    assert CourseBook().result() is None


def test_many_nodes_cost_no_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which operations repeat is found out once a second, however many nodes speak."""
    asked = []
    monkeypatch.setattr(PaceBook, "leading", lambda _self: asked.append(1))
    made, pace = CourseBook(), PaceBook()
    for second in range(10):
        for node in range(100):
            made.take(pace, NodeStatus(node_rank=node), BEGIN + second + node / 1000)
    assert len(asked) == 10
