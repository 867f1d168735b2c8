"""The course of a job: what terminal and HTML say of its rhythm, and the curve of iteration times for an SVG."""

import math
from typing import Any

from allready import units
from allready.model import JobCourse, RankCourse, Report
from allready.report.curve import HEIGHT, LEFT, RIGHT, TOP, WIDTH, Curve, CurveLine, Dot, Tick, round_ticks
from allready.report.safe import plain
from allready.report.words import t

BOTTOM = 40
MAX_ROWS = 16
MIN_SHARE = 0.01
"""A rank for which the others wait less than this share of the time keeps no rank waiting."""
CUT = 4.0
"""Points above so many times the median would flatten the curve: they are drawn at its upper edge."""


def slowest(course: JobCourse) -> RankCourse | None:
    """The rank for which the others waited longest; None where they wait for no rank."""
    first = max(course.ranks, key=lambda r: r.waited_share or 0.0, default=None)
    return first if first is not None and (first.waited_share or 0.0) >= MIN_SHARE else None


def rhythm(course: JobCourse, language: str) -> str:
    """How many iterations there were, and how long one took."""
    name = "course_iterations" if course.has_iterations else "course_operations"
    period = units.time(course.period_s)
    return t(name, language, count=course.num_iterations, group=plain(course.group, most=60), period=period)


def slowest_text(course: JobCourse, language: str) -> str:
    """Who kept the others waiting, and for how long; empty where that was not compared."""
    row = slowest(course)
    if row is None:
        compared = any(r.waited_share is not None for r in course.ranks)
        return t("course_even", language) if compared and course.num_ranks > 1 else ""
    return t(
        "course_slowest", language, rank=row.rank, late=units.time(row.late_s), share=f"{row.waited_share or 0.0:.0%}"
    )


def course_lines(course: JobCourse, language: str) -> list[str]:
    """The rhythm and the slowest rank, one short text each."""
    return [text for text in (rhythm(course, language), slowest_text(course, language)) if text]


def page_course(report: Report) -> dict[str, Any] | None:
    """What the template shows; None for a report without a course."""
    course = report.course
    if course is None:
        return None
    return {
        "course": course,
        "lines": course_lines,
        "curve": _curve(course),
        "longest": max((each for _, each in course.curve_s), default=0.0),
        "is_cut": any(each > CUT * course.period_s for _, each in course.curve_s),
        "ranks": [(r, r is slowest(course)) for r in course.ranks[:MAX_ROWS]],
        "more": max(0, course.num_ranks - MAX_ROWS),
        "with_late": any(r.late_s is not None for r in course.ranks),
        "with_node": len({r.node for r in course.ranks}) > 1,
    }


def _curve(course: JobCourse) -> Curve | None:
    points = [(at, each) for at, each in course.curve_s if math.isfinite(at) and math.isfinite(each) and each > 0]
    if len(points) < 2:
        return None
    most = min(max(each for _, each in points), CUT * course.period_s)
    x_values, x_end = round_ticks(max(at for at, _ in points))
    y_values, y_end = round_ticks(most)

    def x(at: float) -> float:
        return LEFT + max(0.0, at) / x_end * (WIDTH - LEFT - RIGHT)

    def y(each: float) -> float:
        return HEIGHT - BOTTOM - min(each, y_end) / y_end * (HEIGHT - TOP - BOTTOM)

    dots = tuple(Dot(x(at), y(each), f"{units.time(at)}: {units.time(each)}") for at, each in points)
    return Curve(
        lines=(CurveLine(0, "", dots),),
        x_ticks=tuple(Tick(x(value), units.time(value)) for value in x_values if value <= x_end),
        y_ticks=tuple(Tick(y(value), units.time(value)) for value in y_values),
    )
