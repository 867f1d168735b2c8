"""Parts of a job that a log announces: folds, runs of a sweep, stages, shards, models by name; each of them ends as the
whole does."""

import functools
import re
from collections.abc import Iterable, Sequence

from allready.patterns import compiled

_MAX_CHARS = 200
_MAX_LISTS = 8
_OF_THE_LOG = 3
"""Lines at the top, in which a script says which of several runs this log is of."""

_WITH_LOGS = {"trial", "run", "experiment", "repeat", "repetition", "seed", "job"}
"""What is often started again from the beginning, each with a log of its own; folds and stages follow in one."""

_NUMBER = r"(?i)\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_PART = (
    r"(?:fold|split|subject|seed|config(?:uration)?|run|trial|experiment|stage|phase|shard|chunk|part|task|job|"
    r"repeat|repetition|步骤|阶段|任务|实验)"
)
_ROUND = r"(?:round|runde|轮次|轮)"
"""With a total only: without one it is a step."""

_WORDS = (
    *("fold", "split", "subject", "seed", "config", "run", "trial", "experiment", "stage", "phase", "shard", "chunk"),
    *("part", "task", "job", "repe", "sweep", "validation", "grid search", "leave", "步骤", "阶段", "任务", "实验"),
    *("round", "runde", "轮"),
)
"""Most lines hold none of them, which is seen faster than that no pattern matches."""


@functools.cache
def _counted() -> re.Pattern[str]:
    return re.compile(
        rf"(?<![/\w])(?:(?P<name>{_PART})\b|{_ROUND}(?=\W{{0,3}}\d{{1,4}}\s?(?:/|of\b)\s?\d))\W{{0,3}}"
        r"(?P<done>\d{1,4})(?:\s?(?:/|of)\s?(?P<total>\d{1,4})\b(?![./])| of [a-z])",
        re.IGNORECASE,
    )


@functools.cache
def _numbered() -> re.Pattern[str]:
    """A heading that begins with its number: `[1/4] Training model resnet18`; other lines that begin so close it."""
    return re.compile(
        r"\W{0,4}\[(?P<done>\d{1,3})/(?P<total>\d{1,3})\][ :]{1,3}"
        r"(?P<part>(?:train|fine-?tun|fitt|evaluat|runn|process|benchmark)ing "
        r"(?:the )?(?:model|network|fold|task|data ?set|subject|seed|config\w*|experiment)\b)?",
        re.IGNORECASE,
    )


@functools.cache
def _folds() -> re.Pattern[str]:
    """How many there are, and which one begins in a line of its own."""
    return re.compile(
        r"\b(?P<total>\d{1,3})[ -]folds?\b|"
        r"^\W{0,20}(?:[A-Za-z]{1,12} ){0,2}fold[ #_-]{1,2}(?P<done>\d{1,3})(?:\W{0,20}|: .{1,60})$",
        re.IGNORECASE,
    )


@functools.cache
def _heading() -> re.Pattern[str]:
    """A line of its own; with a colon before a number it is a setting, and long numbers are those of jobs."""
    return re.compile(
        r"\W{0,20}(?:[A-Za-z]{1,12} ){0,2}(?:"
        r"(?:fold|split|subject|config(?:uration)?|run|trial|experiment|stage|phase|shard|chunk|repeat)[ #_-]{1,2}"
        r"\d{1,3}|"
        r"(?-i:Stage|Phase): ?[A-Za-z]\w{0,20})(?:\W{0,20}|: (?!\s{0,20}\d[\d,.]{0,20} ?[A-Za-z%/]).{1,60})$",
        re.IGNORECASE,
    )


@functools.cache
def _several() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:sweep(?:ing)? (?:over|of)|cross[ -]?validation|grid search|leave[ -]one\b.{0,20}\bout|"
        r"(?:\d{1,3}|k)[ -]folds?)\b(?!['\"]?\s{0,3}[:=]|\s{0,3}(?:false|none|disabled)\b)",
        re.IGNORECASE,
    )


class _Parts:
    """The parts that the lines so far name, by what they are called: whether more of them may be to come."""

    def __init__(self, *, for_certain: bool) -> None:
        self._for_certain = for_certain
        self._from_zero: set[str] = set()
        self._seen: dict[str, set[int]] = {}
        self._of_the_log: set[str] = set()
        self._num_folds: int | None = None
        self._is_announced = False
        self._open: dict[str, bool] = {}

    def is_open(self) -> bool:
        own = {name for name in self._of_the_log if len(self._seen[name]) == 1}
        is_open = any(is_open for name, is_open in self._open.items() if name not in own)
        return is_open or (self._is_announced and not self._open)

    def add(self, text: str, at: int) -> None:
        counted = list(_counted().finditer(text))
        for match in counted:
            name = (match["name"] or "round").lower()
            self._add(name, int(match["done"]), None if match["total"] is None else int(match["total"]))
        numbered = _numbered().match(text)
        if numbered is not None and (numbered["part"] is not None or "[" in self._open):
            self._add("[", int(numbered["done"]), int(numbered["total"]))
        if at < _OF_THE_LOG:  # each of the others has a log of its own, unless another number follows in this one
            self._of_the_log |= {name for name, seen in self._seen.items() if name in _WITH_LOGS and min(seen) > 1}
        fold = None if counted else _folds().search(text)
        if fold is not None and fold["total"] is not None:
            self._num_folds = int(fold["total"])
        is_known = fold is not None and fold["done"] is not None and self._num_folds is not None
        if fold is not None and is_known:
            self._add("fold", int(fold["done"]), self._num_folds)
        if not self._for_certain:
            self._is_announced = self._is_announced or _several().search(text) is not None
            if not counted and not is_known and _heading().match(text) is not None:
                self._open["heading"] = True

    def _add(self, name: str, done: int, total: int | None) -> None:
        if done == 0:
            self._from_zero.add(name)
        if total is not None:
            self._seen.setdefault(name, set()).add(done)
            is_open = done + (name in self._from_zero) < total
            self._open[name] = is_open and not (self._for_certain and self._open.get(name) is False)
        elif not self._for_certain:
            self._open[name] = True


def is_of_a_part(lines: Iterable[str], *, for_certain: bool = False) -> bool:
    """Whether the last part that these lines name need not be the last one of all.

    `for_certain`: only where they say how many there are, and none is the last: ranks may load theirs in any order.
    """
    parts = _Parts(for_certain=for_certain)
    for at, line in enumerate(lines):
        text = line[:_MAX_CHARS]
        lower = text.lower()
        if "[" in lower[:5] or any(word in lower for word in _WORDS):
            parts.add(text, at)
    return parts.is_open()


@functools.cache
def _named() -> re.Pattern[str]:
    """A line that names the parts and nothing else: `Models to train: bert, roberta`, `Pipeline: train -> evaluate`."""
    item = r"['\"]?[\w./+-]{1,60}['\"]?"
    return re.compile(
        r"\b(?P<kind>model|dataset|task|seed|stage|phase|step|pipeline|workflow|experiment|benchmark|run|subject|job|"
        r"scenario|(?:(?:grid )?search(?:ing)?|sweep(?:ing)?) (?:over|of) (?P<setting>\w{1,24}?))s?(?: to \w{1,12})?"
        r"\s?[:=]\s{0,4}[\[(]?\s?"
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
        if match["kind"].lower() == "step" and all(map(str.isdecimal, items)) and int(items[0]) > 1:
            continue  # where a learning rate falls
        later = "\n".join(lines[at + 1 :])
        seen = [_is_named(one, match["setting"] or match["kind"], later) for one in items]
        if len(set(items)) == len(items) and any(seen) and not all(seen):
            return True
    return False


def _is_named(item: str, kind: str, later: str) -> bool:
    before = rf"\b{kind}s?\W{{1,3}}" if compiled(_NUMBER).fullmatch(item) else r"(?<![\w-])"
    return re.search(rf"{before}{re.escape(item)}(?![\w-])", later, re.IGNORECASE) is not None
