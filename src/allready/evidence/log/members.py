"""A launcher's lines on each of its processes: whether all of them have ended well."""

import re
from collections.abc import Sequence

_ENDED = re.compile(r"\bProcess (\d{1,10}) exits successfully")
_STARTED = re.compile(r"\bprocess (\d{1,10}) spawned with command")
_NUM_STARTED = re.compile(r"\b(?:num_local_procs|dist_world_size)=(\d{1,9})\b")
_EIGHT = 8


def all_ended(lines: Sequence[str], head: str) -> int | None:
    """The place of the line after which no process is left; None where one is, or where their number is not plain.

    Where nothing says how many there were, as many as a node has GPUs must have ended: those that are stuck leave a
    number that no node has.
    """
    ended: dict[str, int] = {}
    for at, text in enumerate(lines):
        if "exits successfully" in text and (match := _ENDED.search(text)) is not None:
            ended[match[1]] = at
    if not ended:
        return None
    started = set(_STARTED.findall(head))
    told = [int(number) for number in _NUM_STARTED.findall(head)]
    if started or told:
        is_all = len(ended) >= max(len(started), *told, 1)
    else:
        is_all = len(ended) % _EIGHT == 0 or len(ended) in {2, 4}
    return max(ended.values()) if is_all else None
