"""What evidence shows that explains more than some rules could say: these are not asked then."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from allready.judging.analysis import Analysis


class Sign(StrEnum):
    """Shown by evidence, whatever rule finds words for it."""

    PROCESS_END = "process end"  # a process ended, and neither a launcher nor another rank's failure brought it about
    OTHER_CALLS = "other calls"  # ranks made different calls under one number
    ROOT_LINE = "root line"  # a line states a first cause, of the severity of an error
    POSITIONS = "positions"  # how far ranks came in a group is recorded
    WAIT = "wait"  # who waits for whom says why the job hangs
    HANG = "hang"  # the same, or ranks are seen inside an operation
    STRAY = "stray"  # one rank left the pattern of its sends and receives, and no rank goes on
    ALL_WELL = "all well"  # every rank ended well
    AGREED = "agreed"  # the runtime library's ranks agreed upon a failure of theirs
    LINTED = "linted"  # the settings are judged one by one, with where they stand


def _has_end(case: Analysis) -> bool:
    from allready.judging.causes import causes  # this and the next: rules about a machine alone need none of them

    return bool(case.of(causes))


def _has_root_line(case: Analysis) -> bool:
    from allready.judging.run_signs import has_grave_root

    return case.of(has_grave_root)


def _is_hang(case: Analysis) -> bool:
    from allready.judging.hang import blame_hang

    return bool(case.of(blame_hang).kind)


def _is_wait(case: Analysis) -> bool:
    from allready.judging.hang import blame_hang

    return _is_hang(case) and not case.of(blame_hang).is_glance


def _is_stray(case: Analysis) -> bool:
    from allready.judging.standing_stray import standing_stray

    return case.of(standing_stray) is not None


SIGNS: Mapping[Sign, Callable[[Analysis], bool]] = {
    Sign.PROCESS_END: _has_end,
    Sign.OTHER_CALLS: lambda case: bool(case.run.mismatches),
    Sign.ROOT_LINE: _has_root_line,
    Sign.POSITIONS: lambda case: bool(case.run.progress),
    Sign.WAIT: _is_wait,
    Sign.HANG: _is_hang,
    Sign.STRAY: _is_stray,
    Sign.AGREED: lambda case: bool(case.run.runtime),
    Sign.LINTED: lambda case: case.is_linted,
    Sign.ALL_WELL: lambda case: (
        case.run.closing is not None
        or (bool(case.run.expected_ranks) and len(case.run.ended_well) >= case.run.expected_ranks)
    ),
}
"""Sign -> whether the evidence shows it."""
