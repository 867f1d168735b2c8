"""Parts of a job that a log announces: folds, runs of a sweep, stages, shards, models by name; each of them ends as the
whole does."""

import functools
import re
from collections.abc import Iterable, Sequence

_MAX_CHARS = 200
_MAX_LISTS = 8
_PART = (
    r"(?:fold|split|subject|seed|config(?:uration)?|run|trial|experiment|stage|phase|shard|chunk|part|task|job|"
    r"repeat|repetition|步骤|阶段|任务|实验)"
)

_WORDS = (
    *("fold", "split", "subject", "seed", "config", "run", "trial", "experiment", "stage", "phase", "shard", "chunk"),
    *("part", "task", "job", "repe", "sweep", "validation", "grid search", "leave", "步骤", "阶段", "任务", "实验"),
)
"""Most lines hold none of them, which is seen faster than that no pattern matches."""


@functools.cache
def _counted() -> re.Pattern[str]:
    return re.compile(
        rf"(?<![/\w])(?P<name>{_PART})\b\W{{0,3}}(?P<done>\d{{1,4}})(?:\s?(?:/|of)\s?(?P<total>\d{{1,4}})\b(?![./])|"
        r" of [a-z])",
        re.IGNORECASE,
    )


@functools.cache
def _heading() -> re.Pattern[str]:
    """A line of its own; with a colon before a number it is a setting, and long numbers are those of jobs."""
    return re.compile(
        r"\W{0,20}(?:[A-Za-z]{1,12} ){0,2}(?:"
        r"(?:fold|split|subject|config(?:uration)?|run|trial|experiment|stage|phase|shard|chunk|repeat)[ #_-]{1,2}"
        r"\d{1,3}|"
        r"(?-i:Stage|Phase): ?[A-Za-z]\w{0,20})(?:\W{0,20}|: .{1,60})$",
        re.IGNORECASE,
    )


@functools.cache
def _several() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:sweep(?:ing)? (?:over|of)|cross[ -]?validation|grid search|leave[ -]one\b.{0,20}\bout|"
        r"(?:\d{1,3}|k)[ -]folds?)\b(?!['\"]?\s{0,3}[:=]|\s{0,3}(?:false|none|disabled)\b)",
        re.IGNORECASE,
    )


def is_of_a_part(lines: Iterable[str], *, for_certain: bool = False) -> bool:
    """Whether the last part that these lines name need not be the last one of all.

    `for_certain`: only where they say how many there are, and none is the last: ranks may load theirs in any order.
    """
    open_parts: dict[str, bool] = {}
    from_zero: set[str] = set()
    is_announced = False
    for line in lines:
        text = line[:_MAX_CHARS]
        lower = text.lower()
        if not any(word in lower for word in _WORDS):
            continue
        for match in _counted().finditer(text):
            name, done, total = match["name"].lower(), int(match["done"]), match["total"]
            if done == 0:
                from_zero.add(name)
            if total is not None:
                is_open = done + (name in from_zero) < int(total)
                open_parts[name] = is_open and not (for_certain and open_parts.get(name) is False)
            elif not for_certain:
                open_parts[name] = True
        if not for_certain:
            is_announced = is_announced or _several().search(text) is not None
            if _counted().search(text) is None and _heading().match(text) is not None:
                open_parts["heading"] = True
    return any(open_parts.values()) or (is_announced and not open_parts)


@functools.cache
def _named() -> re.Pattern[str]:
    """A line that names the parts and nothing else: `Models to train: bert, roberta`, `Pipeline: train -> evaluate`."""
    item = r"['\"]?[\w./+-]{1,60}['\"]?"
    return re.compile(
        r"\b(?P<kind>model|dataset|task|seed|stage|phase|step|pipeline|workflow|experiment|benchmark|run|subject|job|"
        r"scenario)s?(?: to \w{1,12})?\s?[:=]\s{0,4}[\[(]?\s?"
        rf"(?P<items>{item}(?:\s?(?:,|->|→|=>)\s?{item}){{1,20}})\s?[\])]?\s*$",
        re.IGNORECASE,
    )


def is_of_a_list(lines: Sequence[str]) -> bool:
    """Whether these lines name the parts of the job, speak of some of them later and of others never."""
    num = 0
    for at, line in enumerate(lines):
        if len(line) > _MAX_CHARS or ("," not in line and ">" not in line and "→" not in line):
            continue
        match = _named().search(line)
        if match is None or (num := num + 1) > _MAX_LISTS:
            continue
        items = [one.strip(" '\"") for one in re.split(r",|->|→|=>", match["items"])]
        later = "\n".join(lines[at + 1 :])
        seen = [_is_named(one, match["kind"], later) for one in items]
        if len(set(items)) == len(items) and any(seen) and not all(seen):
            return True
    return False


def _is_named(item: str, kind: str, later: str) -> bool:
    before = rf"\b{kind}s?\W{{1,3}}" if item.isdecimal() else r"(?<![\w-])"
    return re.search(rf"{before}{re.escape(item)}(?![\w-])", later, re.IGNORECASE) is not None
