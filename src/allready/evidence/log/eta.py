"""What is left, where a program prints it: `eta: 0:00:21` counts the whole run down, or each epoch again."""

from collections.abc import Sequence
from itertools import pairwise

from allready.evidence.log.progress import LineCount
from allready.patterns import compiled

_ETA = (
    r"(?i)\beta['\"]?\s{0,3}[:=]?\s{0,3}['\"]?"
    r"(?:(?P<days>\d{1,4}) days?,? ?)?(?:(?P<h>\d{1,4}):)?(?P<m>\d{1,2}):(?P<s>\d{2})\b"
)
_FEW = 4
_MUCH = 4


def counts_down(lines: Sequence[str], head: str, readings: Sequence[LineCount]) -> int | None:
    """The place of the last line that says how much is left, where the next one would have come behind the end of the
    whole run; None where that is not plain."""
    estimates = [(at, left) for at, text in enumerate(lines) if (left := left_s(text)) is not None]
    if len(estimates) < _FEW:
        return None
    begun = next((left for text in head.splitlines() if (left := left_s(text)) is not None), 0)
    falls = [a - b for (_, a), (_, b) in pairwise(estimates)]
    at, left = estimates[-1]
    if min(falls) < -_MUCH * max(falls[-1], 1) or begun < _MUCH * max(estimates[0][1], 1):
        return None  # it begins again, or the beginning was not far away
    epochs = [(one.at, one.done) for one in readings if one.is_outer and not one.is_minor]
    changes = sum(a[1] != b[1] and estimates[0][0] < b[0] <= at for a, b in pairwise(epochs))
    if epochs and not changes:
        return None  # it may be of this epoch
    return at if left <= 2 * max(falls[-1], 1) else None


def left_s(text: str) -> int | None:
    """The seconds that a line says are left."""
    match = compiled(_ETA).search(text) if "eta" in text or "ETA" in text else None
    if match is None:
        return None
    days, hours = int(match["days"] or 0), int(match["h"] or 0)
    return ((days * 24 + hours) * 60 + int(match["m"])) * 60 + int(match["s"])
