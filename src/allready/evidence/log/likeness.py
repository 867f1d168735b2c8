"""How much the end of a log is like that of a run that is over: a sum of what stands for it and what against it.

Words that everybody uses differently weigh little; what a log itself makes of its end weighs more.  A program repeats
itself while it works: of most places in its log the line there is one that it has written many times.  Where the last
lines are such as it had not written since its loop began, the loop is left.  The weights stand in `likeness.toml`, with
what each feature means; `benchmarks/good_ends.py` fits them to a folder of logs whose ends are known.
"""

import functools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import NamedTuple

from allready.evidence.log import closing_words as wording
from allready.evidence.log.left_loop import TIMES, form, plain
from allready.evidence.log.trouble import is_of_a_library

_MIN_LOOP, _MIN_LINES = 20, 100
"""Lines of a loop, and of the log: with fewer, one line that is new is nothing unusual."""

_FEW, _MANY = 5, 20
_LAST = 3
_NEW_LINES = 40
_SELDOM = 2
_COUNT_LINES, _NUM_COUNTS = 60, 4
_MAX_ANNOUNCING = 400
_OWN_SHARE = 0.3
"""Where less of a log is the program's own, it writes as libraries do."""

_LETTERS = re.compile(r"[^\W\d_]{2}|[\u3040-\uffdc]")
_DONE = re.compile(
    r"\b(?:done|finish\w*|completed?|completes|success\w*|ended|bye|goodbye|concluded?|all good|exiting|the end|fin)\b|"
    r"完成|结束|完毕|完了|終了|완료|종료|\b(?:termin[oiaé]\w*|finaliz\w*|complet[aoé]\w*|fertig|beendet|"
    r"abgeschlossen|selesai|готово|заверш\w*|оконч\w*|xong|zakończ\w*|tamamlan\w*|klar|valmis|gotov\w*)\b|"
    r"\bexit(?:ed)?\b.{0,20}\b0\b",
    re.IGNORECASE,
)
_SAVED = re.compile(
    r"\b(?:saved?|saving|write|writing|written|wrote|export\w*|stored?|dump\w*|outputs?|upload\w*|generated|results?|"
    r"report|synced|plots?|figures?)\b|保存|写入|导出|저장|сохран\w*|guardad\w*|salv[ao]\w*|enregistr\w*|gespeichert",
    re.IGNORECASE,
)
_RESULT = re.compile(
    r"\b(?:test\w*|final\w*|best|overall|average[ds]?|avg|mean|total|summary|results?|evaluat\w*|scores?|metrics?|macro|"
    r"weighted|accuracy|auc|f1|bleu|m?ap|miou|precision|recall|throughput|elapsed|took|duration|runtime|time|peak)\b|"
    r"最佳|最终|平均|总|测试|结果|耗时",
    re.IGNORECASE,
)
_BEGINS = re.compile(
    r"\b(?:start\w*|begin\w*|load\w*|initiali\w*|running|launch\w*|evaluating|training|testing|creat\w*|build\w*|"
    r"prepar\w*|download\w*|using|set(?:ting)? up|resum\w*|import\w*|reading|processing|computing|generating|wait\w*|"
    r"epoch|warm\w*|compil\w*|next|now|will|connect\w*|trying|retry\w*)\b|开始|加载|正在|初始化|创建",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"(?:[\w.~-]{1,80}/){1,20}[\w.-]{1,80}|"
    r"\b\w{1,80}\.(?:png|jpg|pdf|csv|json|pth?|ckpt|h5|pkl|np[yz]|txt|html|log|md|xlsx|bin|safetensors|onnx)\b"
)
_COUNT = re.compile(r"(?<![\d./-])(\d{1,9})\s?(?:/|of)\s?(\d{1,9})(?![\d./-])")
_BAR = re.compile(r"(\d{1,3})%\|")
_COUNTER = re.compile(r"\b(?:epoch|step|iter(?:ation)?|episode|round)s?\W{1,4}(\d{1,9})\b", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\d.])\d{1,7}(?![\d.])")
_MIN_ANNOUNCED = 5
_MIN_ROUND = 10
_HALVES = {15, 25, 75, 150, 250, 1500, 2500}


_SAID = (
    *("count_full", "counted_announced", "says_done", "said_done", "says_saved", "said_saved", "said_result"),
    *("names_a_file", "means_all", "likely_words"),
)
"""Of these a log must show one: that its form is new is not enough."""


class Weights(NamedTuple):
    """`start`: what a log without any feature has; `least`: from where on it reads like a good end."""

    start: float
    least: float
    by_feature: Mapping[str, float]


class Lines(NamedTuple):
    """A log's own lines.  `seen`: how often the form of each had been seen before; `times`: how often in all."""

    texts: Sequence[str]
    forms: Sequence[str]
    seen: Sequence[int]
    times: Mapping[str, int]
    loop_from: int
    loop_to: int

    @property
    def behind(self) -> int:
        """How many follow the loop."""
        return len(self.forms) - 1 - self.loop_to

    def new(self) -> list[str]:
        """The last lines of forms that are seldom, behind the loop."""
        first = max(len(self.forms) - _NEW_LINES, self.loop_to + 1)
        return [self.texts[at] for at in range(first, len(self.forms)) if self.times[self.forms[at]] <= _SELDOM]


@functools.cache
def weights() -> Weights:
    """The fitted ones."""
    table = tomllib.loads((resources.files("allready.evidence.log") / "likeness.toml").read_text(encoding="utf-8"))
    return Weights(table["start"], table["least"], {one["name"]: one["weight"] for one in table["feature"]})


def of(found: Mapping[str, float]) -> float:
    """The sum; how likely a good end is, as the logarithm of its odds."""
    known = weights()
    return known.start + sum(weight * found.get(name, 0.0) for name, weight in known.by_feature.items())


def reasons(found: Mapping[str, float], most: int = 3) -> tuple[str, ...]:
    """What speaks most for an end."""
    by_feature = weights().by_feature
    parts = {name: by_feature[name] * value for name, value in found.items() if by_feature.get(name, 0.0) * value > 0}
    return tuple(sorted(parts, key=lambda name: -parts[name])[:most])


def features(raw: Iterable[str]) -> dict[str, float]:
    """What the end of a log shows, by name; {} where the log is too short, or has no loop that it could have left,
    goes on in its last line, or where nothing in the last lines is of an end but that they are new.

    `raw`: what is kept of it, line by line, of a bar every state.
    """
    lines = own_lines(raw)
    if lines is None or _goes_on(lines.texts[-1]):
        return {}
    found = {**_of_the_course(lines), **_of_the_counts(lines), **_of_the_words(lines)}
    return {name: value for name, value in found.items() if value} if any(map(found.get, _SAID)) else {}


def own_lines(raw: Iterable[str]) -> Lines | None:
    """The lines that say something, without those of libraries; None where they are few, or do not come again."""
    texts = [text for text in map(plain, raw) if _LETTERS.search(text) is not None]
    own = [text for text in texts if not is_of_a_library(text)]
    if len(own) < _OWN_SHARE * len(texts):
        own = texts
    if len(own) < _MIN_LINES:
        return None
    forms = list(map(form, own))
    times = Counter(forms)
    before: Counter[str] = Counter()
    seen = []
    for one in forms:
        seen.append(before[one])
        before[one] += 1
    loop = [at for at, one in enumerate(forms) if times[one] >= TIMES]
    return Lines(own, forms, seen, times, loop[0], loop[-1]) if len(loop) >= _MIN_LOOP else None


def _goes_on(last: str) -> bool:
    """Whether the last line begins something, counts a step, waits, or announces what is to come."""
    if last.rstrip().endswith((":", "...", "…", ",")) or wording.goes_on(last):
        return True
    return any(words().search(last) is not None for words in (wording.begins, wording.waits))


def _of_the_course(lines: Lines) -> dict[str, float]:
    """How unusual the end is among all places of the log since its loop began.

    A log that was cut at any place is at a usual one, whatever its program prints.
    """
    num = len(lines.forms)
    places = range(min(lines.loop_from, num - 1), num - 1)
    of_last = lines.times[lines.forms[-1]]
    as_fresh = sum(lines.seen[at] <= lines.seen[-1] for at in places)
    as_rare = sum(lines.times[lines.forms[at]] <= of_last for at in places if at <= lines.loop_to)
    runs = _runs(lines.seen)
    as_long = sum(runs[at] >= runs[-1] for at in places) if runs[-1] else len(places)
    ends_loop = lines.forms[-1] if of_last >= _LAST else None
    recent = {one for one in lines.forms[-_MAX_ANNOUNCING:] if lines.times[one] >= _LAST}
    first = {one: lines.forms.index(one) for one in recent}
    behind = lines.behind
    return {
        "fresh": _unusual(as_fresh, len(places)),
        "rare": _unusual(as_rare, len(places)),
        "fresh_run": _unusual(as_long, len(places)),
        "few_behind": float(0 < behind <= _FEW),
        "many_behind": float(behind > _MANY),
        "in_loop": float(ends_loop is not None),
        "ends_period": float(ends_loop is not None and len(recent) > 1 and first[ends_loop] == max(first.values())),
    }


def _unusual(alike: int, places: int) -> float:
    """The logarithm to base 10 of how few places are like the end."""
    return -math.log10((1 + alike) / (2 + places))


def _runs(seen: Sequence[int]) -> list[int]:
    """How many lines in a row, up to each, are of a form that was seen once at most."""
    runs: list[int] = []
    for times in seen:
        runs.append((runs[-1] if runs else 0) + 1 if times < _SELDOM else 0)
    return runs


def _of_the_counts(lines: Lines) -> dict[str, float]:
    """Whether what is counted has come to an end."""
    texts = lines.texts[-_COUNT_LINES:]
    counts = [(int(done), int(total)) for text in texts for done, total in _COUNT.findall(text)][-_NUM_COUNTS:]
    is_full = any(done == total > 1 for done, total in counts)
    is_nearly = not is_full and any(done == total - 1 > 1 for done, total in counts)
    bars = [int(share) for text in texts for share in _BAR.findall(text)][-1:]
    found = {
        "count_full": float(is_full or bars == [100]),
        "count_open": float((bool(counts) and not is_full and not is_nearly) or any(share < 100 for share in bars)),
    }
    numbers = [int(number) for text in lines.texts for number in _COUNTER.findall(text)]
    if not numbers:
        return found
    last = numbers[-1]
    head = lines.texts[: min(lines.loop_from, _MAX_ANNOUNCING)]
    announced = {int(number) for text in head for number in _NUMBER.findall(text)}
    ends = {last, last + 1}
    return {
        **found,
        "counted_round": float(any(map(_is_round, ends))),
        "counted_announced": float(any(number >= _MIN_ANNOUNCED and number in announced for number in ends)),
        "counted_highest": float(last == max(numbers)),
    }


def _is_round(number: int) -> bool:
    return number >= _MIN_ROUND and (number % 10 ** (len(str(number)) - 1) == 0 or number in _HALVES)


def _of_the_words(lines: Lines) -> dict[str, float]:
    last, some, new = lines.texts[-1], lines.texts[-_LAST:], lines.new()
    words = wording.without_paths(last)
    is_done = _DONE.search(words) is not None
    is_of_a_step = wording.STEP.search(last) is not None or any(
        int(done) < int(total) for done, total in _COUNT.findall(last)
    )

    def stands(pattern: re.Pattern[str], texts: Sequence[str]) -> float:
        return float(any(pattern.search(wording.without_paths(text)) is not None for text in texts))

    is_result = float(wording.result().search(last) is not None or _RESULT.search(words) is not None)
    return {
        "says_done": float(is_done and not is_of_a_step),
        "said_done": stands(_DONE, some),
        "says_saved": stands(_SAVED, [last]),
        "said_saved": stands(_SAVED, new),
        "says_result": is_result,
        "said_result": stands(_RESULT, some),
        "names_a_file": float(any(_PATH.search(text) is not None for text in new)),
        "means_all": float(any(map(wording.means_all, new))),
        "likely_words": float(
            any(wording.LIKELY.search(text) is not None and not wording.is_other(text) for text in new)
        ),
        "begins": float(_BEGINS.search(words) is not None and not is_done),
    }
