"""Where another run begins behind the end of one: writing into the same file, of a program that this log may not have
seen before."""

from collections.abc import Sequence
from itertools import pairwise

from allready.evidence import clock as clocks
from allready.evidence.clock import Clock
from allready.evidence.log import closing_words as wording
from allready.evidence.log.announced import counted
from allready.evidence.log.left_loop import plain
from allready.evidence.prefix import parse
from allready.patterns import compiled

_PAUSE_S = 1_800
"""More than a program takes to write out what it has, or a job script to move it away."""

_MANY, _USUAL = 3, 0.9
"""So many times as long as the longest of the pauses of which a run made nine in ten."""

_MIN_AGAIN = 6
"""Lines of the log's beginning, one behind the other, that stand again: its settings."""

_MIN_LETTERS = 4
_TITLE = r"(?P<rule>[=#*~-]{2,60}) ?(?P<words>[^\W\d_].{0,60}?) ?(?P=rule)"


def later_run(earlier: Sequence[str], lines: Sequence[str], at: int) -> int | None:
    """The place behind `at` from which on the lines are another run's, or another part's: written after a long pause,
    the log's beginning once more, or below a title like one above the work."""
    places = _after_pause(lines, at), _beginning(earlier, lines, at), _title(earlier, lines, at)
    return min((place for place in places if place is not None), default=None)


def _after_pause(lines: Sequence[str], at: int) -> int | None:
    raw = [text.encode() for text in lines]
    clock = Clock(lambda: clocks.latest_dated(raw) or 0.0)
    timed = [
        (place, when_s) for place, text in enumerate(lines) if text and (when_s := _time_of(text, clock)) is not None
    ]
    pauses = [(b - a, place) for (_, a), (place, b) in pairwise(timed)]
    own = sorted(pause for pause, place in pauses if place <= at)
    own_s = own[int(_USUAL * (len(own) - 1))] if own else 0.0
    return next((place for pause, place in pauses if place > at and pause > max(_PAUSE_S, _MANY * own_s)), None)


def _time_of(text: str, clock: Clock) -> float | None:
    prefix = parse(text[:200], clock)
    return prefix.time_s if prefix.time_s is not None else prefix.outer_time_s


def _beginning(earlier: Sequence[str], lines: Sequence[str], at: int) -> int | None:
    before = [text for text in map(plain, (*earlier, *lines[: at + 1])) if _says(text)]
    end = plain(lines[at])
    before = before[: before.index(end) + 1] if end in before else before  # where it stands first
    behind = [(place, text) for place, text in enumerate(map(plain, lines)) if place > at and _says(text)]
    first: dict[str, int] = {}
    for i, text in enumerate(before):
        first.setdefault(text, i)
    run, begun = 0, None
    for (_, above), (place, text) in pairwise([(-1, ""), *behind]):
        follows = above in first and first.get(text) == first[above] + 1
        run, begun = (run + 1, begun) if follows else (1, place)
        if run >= _MIN_AGAIN:
            return begun
    return None


def _title(earlier: Sequence[str], lines: Sequence[str], at: int) -> int | None:
    last = max((place for place, text in enumerate(lines) if text.strip()), default=-1)
    mine = compiled(_TITLE).fullmatch(plain(lines[last])) if last > at else None
    if mine is None or wording.done().search(mine["words"]) is not None:
        return None
    others = [match for text in map(plain, (*earlier, *lines[: at + 1])) if (match := compiled(_TITLE).fullmatch(text))]
    alike = {match["words"] for match in others if match["rule"] == mine["rule"]}
    return last if alike and mine["words"] not in alike else None


def _says(text: str) -> bool:
    """Whether it may be one of a run's first lines; an evaluation counts its steps again each time."""
    return sum(map(str.isalpha, text)) >= _MIN_LETTERS and not counted([text])
