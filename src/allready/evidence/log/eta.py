"""What is left, where a program prints it: `eta: 0:00:21` counts the whole run down, or each epoch again."""

from collections.abc import Sequence
from itertools import pairwise

from allready.evidence.log.progress import LineCount
from allready.patterns import compiled

_ETA = (
    r"(?i)\beta['\"]?\s{0,3}[:=]?\s{0,3}['\"]?"
    r"(?:(?P<days>\d{1,4}) days?,? ?)?(?:(?P<h>\d{1,4}):)?(?P<m>\d{1,2}):(?P<s>\d{2})\b"
)
_UNIT = (
    r"(?i)\beta['\"]?\s{0,3}[:=]?\s{0,3}['\"]?(?P<left>\d{1,6}(?:\.\d{1,6})?)\s?"
    r"(?P<unit>s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)\b"
)
_UNITS_S = {"s": 1, "m": 60, "h": 3600}
_FEW = 4
_MUCH = 4
_AGAIN = 1.5
"""So many times as much is left where a count began again; less is a guess that was put right."""


def counts_down(lines: Sequence[str], head: str, readings: Sequence[LineCount]) -> int | None:
    """The place of the last line that says how much is left, where the next one would have come behind the end of the
    whole run; None where that is not plain."""
    estimates = [(at, left) for at, text in enumerate(lines) if (left := left_s(text)) is not None]
    if len(estimates) < _FEW:
        return None
    begun = [(text, left) for text in head.splitlines() if (left := left_s(text)) is not None][:2]
    is_all = bool(begun) and lines[estimates[0][0]] == begun[0][0] and any(one.is_outer for one in readings)
    if is_all and len(estimates) > _FEW:
        del estimates[0]  # a guess, before the speed was known
    most = max((left for _, left in begun), default=0)
    falls = [a - b for (_, a), (_, b) in pairwise(estimates)]
    at, left = estimates[-1]
    epochs = [(one.at, one.done) for one in readings if one.is_outer and not one.is_minor]
    is_again = any(b - a > _MUCH * max(falls[-1], 1) and b >= _AGAIN * a for (_, a), (_, b) in pairwise(estimates))
    if is_again or (not is_all and most < _MUCH * max(estimates[0][1], 1)):
        return None  # it begins again, or the beginning was not far away
    changes = sum(a[1] != b[1] and estimates[0][0] < b[0] <= at for a, b in pairwise(epochs))
    if epochs and not changes:
        return None  # it may be of this epoch
    return at if left <= 2 * max(falls[-1], 1) else None


def left_s(text: str) -> int | None:
    """The seconds that a line says are left."""
    if "eta" not in text and "ETA" not in text:
        return None
    match = compiled(_ETA).search(text)
    if match is None:
        in_units = compiled(_UNIT).search(text)
        return None if in_units is None else round(float(in_units["left"]) * _UNITS_S[in_units["unit"][0].lower()])
    days, hours = int(match["days"] or 0), int(match["h"] or 0)
    return ((days * 24 + hours) * 60 + int(match["m"])) * 60 + int(match["s"])
