import re

import pytest
from msgspec.structs import replace

from allready.model import JobCourse, RankCourse, Report
from allready.report.course import CUT, course_lines, page_course, slowest
from allready.report.html import render
from tests.report.made_up import healthy_report
from tests.report.test_html import Seen

COURSE = JobCourse(
    group="default_pg",
    num_iterations=2400,
    has_iterations=True,
    period_s=0.02,
    curve_s=tuple((float(n), 0.02 + 0.001 * (n % 3)) for n in range(48)),
    ranks=(
        RankCourse(rank=3, node=1, num_operations=4800, late_s=0.005, waited_share=0.26),
        RankCourse(rank=0, node=0, num_operations=4800, late_s=0.0, waited_share=0.0),
    ),
    num_ranks=4,
)


def report_with(course: JobCourse) -> Report:
    return replace(healthy_report(2), findings=(), course=course)


def test_a_healthy_job_shows_its_iterations_their_time_and_the_slowest_rank() -> None:
    page = render(report_with(COURSE))
    text = Seen(page).text
    for part in (
        "2400 iterations seen, 20 ms each",
        "slowest: rank 3, 5 ms behind the first",
        "26% of the time",
        "1 (gpu1)",
    ):
        assert part in text
    assert page.index("Course of the job") < page.index("No rule found anything")
    assert "2400 次迭代" in text


def test_the_curve_has_a_point_for_every_piece_and_grows_upwards() -> None:
    found = page_course(report_with(COURSE))
    assert found is not None
    dots = found["curve"].lines[0].dots
    assert len(dots) == 48
    assert dots[1].y < dots[0].y
    assert [d.x for d in dots] == sorted(d.x for d in dots)
    assert found["is_cut"] is False


def test_one_long_iteration_does_not_flatten_the_others() -> None:
    slow_start = replace(COURSE, curve_s=((0.0, 30.0), *COURSE.curve_s[1:]))
    found = page_course(report_with(slow_start))
    assert found is not None
    dots = found["curve"].lines[0].dots
    assert max(d.y for d in dots[1:]) - dots[0].y < 220
    assert dots[1].y - dots[0].y > 100
    assert found["is_cut"] is True
    assert "the longest: 30 s" in Seen(render(report_with(slow_start))).text
    assert CUT > 1


def test_nobody_is_slowest_where_nobody_is_waited_for() -> None:
    even = replace(COURSE, ranks=tuple(replace(r, waited_share=0.001) for r in COURSE.ranks))
    assert slowest(even) is None
    assert course_lines(even, "en")[-1] == "no rank kept the others waiting"
    unknown = replace(COURSE, ranks=tuple(replace(r, waited_share=None, late_s=None) for r in COURSE.ranks))
    assert len(course_lines(unknown, "en")) == 1


@pytest.mark.parametrize("curve", [(), ((0.0, 0.1),), ((float("nan"), 0.1), (1.0, float("inf")))])
def test_a_course_without_a_curve_draws_none(curve: tuple[tuple[float, float], ...]) -> None:
    page = render(report_with(replace(COURSE, curve_s=curve)))
    assert not re.search(r"<polyline[^>]*></polyline><text", page.partition("Course of the job")[2][:400])
    assert "nan" not in page.partition("Course of the job")[2][:2000]
