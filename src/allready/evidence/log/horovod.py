"""Horovod's reports of tensors for which ranks wait: which rank has not submitted which.

Rank 0 writes them every minute.  The list has three forms: `TENSOR [ready ranks: 5, 1]` (until 0.13), `TENSOR [missing
ranks: 0]` (until 0.16), and since then one line per missing rank, `3: [TENSOR, TENSOR ...]`, a `!` behind the number of
who is the reason that Horovod shuts down.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from allready.evidence.log.line import Line
from allready.model import TensorRanks, TensorStall
from allready.patterns import compiled

MAX_LINES = 400  # so much may stand behind the last report of a job that did not go on
_MAX_BELOW = 256
_MAX_TENSORS = 24
_HEADER = "broadcasted by subset of ranks"
_RANK = r"(?:^|[\s:>\]|])(\d{1,7})(!?): \[([^\[\]]{1,4000}?)( \.\.\.)?\]\s*$"
_TENSOR = r"(?:Stalled ops:)?(\S{1,300}) \[(missing|ready) ranks: ?(\d{1,7}(?:, ?\d{1,7}){0,4096})\]"
_SHUT_DOWN = 'One or more rank (marked by "!") is stalled'
_OWN_STAMP = r"^\[\d{4}-\d\d-\d\d [\d:.]{8,16}: [A-Z] "


def report(lines: Sequence[Line], at: int) -> TensorStall:
    """What the report that begins with `lines[at]` says."""
    missing: dict[str, set[int]] = {}
    ready: dict[str, set[int]] = {}
    stopped: set[int] = set()
    cut: set[int] = set()
    opener = lines[at]
    for line in lines[at : at + 1 + _MAX_BELOW]:
        if line is not opener and (_HEADER in line.text or (line.text[:1] == "[" and _is_anothers(line))):
            break
        for tensor, kind, numbers in compiled(_TENSOR).findall(line.text):
            (missing if kind == "missing" else ready).setdefault(tensor, set()).update(map(int, numbers.split(",")))
            line.is_understood = True
        found = compiled(_RANK).search(line.text) if line is not opener else None
        names = found[3].split(", ") if found is not None else []
        if found is not None and all(" " not in name and not _is_number(name) for name in names):
            line.is_understood = True
            rank = int(found[1])
            for name in names:
                missing.setdefault(name, set()).add(rank)
            if found[2]:
                stopped.add(rank)
            if found[4]:
                cut.add(rank)
        if _SHUT_DOWN in line.text:
            break
    return TensorStall(
        missing=_table(missing), ready=_table(ready), stopped=tuple(sorted(stopped)), cut=tuple(sorted(cut))
    )


def missing_in(stall: TensorStall) -> str:
    """The ranks that have not submitted one of the tensors, for a reader."""
    return ", ".join(map(str, sorted({rank for one in stall.missing for rank in one.ranks})))


def _is_anothers(line: Line) -> bool:
    """Whether it is a line of Horovod's logger about something else than a tensor."""
    return compiled(_OWN_STAMP).match(line.text) is not None and compiled(_TENSOR).search(line.text) is None


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).isdecimal()


def _table(by_tensor: Mapping[str, set[int]]) -> tuple[TensorRanks, ...]:
    first = islice(by_tensor.items(), _MAX_TENSORS)
    return tuple(TensorRanks(name, tuple(sorted(ranks))) for name, ranks in first)
