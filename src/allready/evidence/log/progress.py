"""Counts that go up to an end that the program announced: bars, `epoch 3/10`, `step 100 of 1000`."""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from allready.evidence.log import languages
from allready.evidence.log.bars import PERCENT, is_outermost
from allready.evidence.log.trouble import is_of_a_library
from allready.patterns import compiled

_COUNT = (
    r"(?i)(?P<label>\b(?:global[_ ]?|train(?:ing)?[_ ]?)?(?:epochs?|steps?|iter(?:ation)?s?|batch(?:es)?|updates?|"
    rf"rounds?|episodes?|runs?|trials?|tests?|{languages.EPOCHS}|{languages.STEPS})"
    r"(?:\(\w{1,20}\))?)['\"]?\s{0,4}[:=#]?\s{0,8}[\[(]?\s{0,8}(?P<done>\d{1,12})"
    r"[ \t]{0,8}(?:/|(?:out[ \t])?of)[ \t]{0,8}"
    r"(?P<total>\d{1,12})(?![\d.]*[/.]\d)"
)
_BAR = (
    r"(?P<label>.{0,120}?)(?P<percent>\d{1,3})%(?:\|[^|]{0,300}\|\s{0,8}|\s{1,4}(?=\d{1,12}/\d{1,12} \[[\d:]{4,12}<))"
    r"(?P<done>\d{1,12})/(?P<total>\d{1,12})\b"
)
"""tqdm's, also where it has no room for the meter: `100% 1330/1330 [14:55<00:00,  1.48it/s]`."""

_INNER = (
    r"(?i)\bepochs?(?:\(\w{1,20}\))?:?\s{0,4}\[\s{0,8}(?P<epoch>\d{1,9})\]\s{0,4}"
    r"\[\s{0,8}(?P<done>\d{1,12})\s{0,8}/\s{0,8}(?P<total>\d{1,12})\]"
)
_BEHIND_OUTER = (
    r"[\])]?[ \t]{0,4}[,:;|-]?[ \t]{0,4}[\[(]\s{0,8}(?P<done>\d{1,12})\s{0,4}/\s{0,4}(?P<total>\d{1,12})\s{0,4}[\])]"
)
"""What stands right behind a count of epochs counts within them: `Epoch:[1/3](40/2000)`, `Epoch 1/60 [0/445]`."""

_BRACKET = (
    r"(?:^|[\s>:|\]])(?P<label>[A-Za-z][A-Za-z_-]{2,24}):?\s{0,4}(?:\d{1,6}\s{1,4})?"
    r"\[\s{0,8}(?P<done>\d{1,12})\s{0,4}/\s{0,4}(?P<total>\d{1,12})\s{0,4}(?:\(\s{0,2}\d{1,3}%\)\s{0,4})?\]|"
    r"\[(?P<name>[A-Za-z][A-Za-z_-]{2,24}) (?P<count>\d{1,12})/(?P<of>\d{1,12})\]"
)
_NO_STEP = r"(?i)rank|gpu|node|worker|proc|device|layer|expert|thread|version|page|shard|epoch"
_TABLE = r"\s{0,12}(?P<done>\d[\d,]{0,14})/(?P<total>\d[\d,]{0,14})(?=\s)(?!\s{1,4}\d{1,2}:\d\d)(?![\s\d]{0,8}[\[━=])"
_KERAS = r"\s{0,8}(?P<done>\d{1,9})/(?P<total>\d{1,9})\s{1,4}(?:\[[=>. ]{2,200}\]|[━╸╺]{2,200})"
_ORDINAL = (
    rf"第?\s?(?P<done>\d{{1,9}})\s?/\s?(?P<total>\d{{1,9}})\s?{languages.ORDINAL}|"
    rf"第\s?(?P<alone>\d{{1,9}})\s?{languages.ORDINAL}"
)
_EPOCH = (
    rf"(?i)(?<!max-)(?<!num-)(?<!total-)(?<!per )\b(?:epoch\b|{languages.EPOCHS})"
    r"['\"]?\s{0,4}[:=#\[(]?\s{0,8}(?P<done>\d{1,9})\b"
    r"(?!\s{0,8}(?:/|(?:out )?of\b|%\|)|\.\d)"
)
_EPOCH_ENDS = (
    r"(?i)\bend[-_ ]of[-_ ](?:the[-_ ]|train(?:ing)?[-_ ])?epoch\b|"
    r"\bepoch\b\W{0,4}\d{1,9}\W{1,4}(?:is |has |was )?(?:done|finished|completed?|ended|over)\b"
)
_MINOR = (
    r"(?i)eval|valid|test|load|download|tokeniz|\bmap|sampl|generat|sav|filter|infer|predict|extract|shard|warm|prepar|"
    r"convert|fetch|upload|resolv|writ|cach|pack|compil|group|sanity|captur|build|import"
)
_NUM_EPOCHS = (
    r"(?i)(?:num[_ -]?(?:train[_ -]?)?epochs?|max[_ -]?epochs?|total[_ -]?epochs?|train[_ -]?epochs|n[_ -]?epochs|"
    r"epochs?[_ -]?num|(?<![\w/])-{0,2}epochs)"
    r"['\"]?\s{0,4}[:= .]\s{0,40}['\"]?(\d{1,9})\b(?![./]\d)|"
    r"\b(?:train\w*|fine-?tun\w*|fit\w*|run\w*)\b[^\d\n]{0,40}?\bfor (\d{1,9}) epochs\b"
)
_FILE = r"(?<!\S)\S{1,300}?\.(?:ckpt|pth?|bin|safetensors|tar|h5|npz|msgpack|distcp)\b\S{0,60}"
"""`epoch=9-step=1000.ckpt` counts nothing."""

_FILES = (".ckpt", ".pt", ".bin", ".safetensors", ".tar", ".h5", ".np", ".msgpack", ".distcp")

_OUTER = rf"(?i)(?:train(?:ing)? )?epoch|run|trial|{languages.EPOCHS}"
_OF_EPOCHS = {"epoch", "epochs", "training epochs", "train epoch"}
_RESULT = r"[=:|]\s{0,8}-?\d{1,9}\.\d{1,20}\s*\|?$"
_MANY_RESULTS = 6
_MANY = 3
_FEW_EPOCHS = 2
_NUM_BEFORE = 5
_ABOUT_AS_MUCH = 0.9


class CountForm(StrEnum):
    """How a count is written, which tells what it may be of."""

    WORDS = "words"  # `epoch 3/10`: its own words
    BAR = "bar"
    INNER = "inner"  # a second count beside that of epochs
    BRACKET = "bracket"  # `Evaluation [ 20/251]`
    TABLE = "table"  # the first column
    ORDINAL = "ordinal"


class Label(NamedTuple):
    """What tells the counts of a log apart: their form, and the words that they have."""

    form: CountForm
    words: str = ""


class LineCount(NamedTuple):
    """One line's count.  `is_outer`: of epochs, which hold steps."""

    at: int
    label: Label
    done: int
    total: int | None = None
    is_outer: bool = False
    is_minor: bool = False


_EPOCHS = Label(CountForm.WORDS, "epoch")


class LastProgress(NamedTuple):
    """Where a program was when it wrote its last lines.

    `done`, `total`: of the count that holds the others.  `is_full`: it says itself that its end is reached.
    `at`: the place of the last line with any count.
    """

    at: int
    done: int
    total: int | None
    is_full: bool
    is_midway: bool


@functools.lru_cache(2048)
def counts(at: int, text: str) -> tuple[LineCount, ...]:
    """All counts in one line, which several readers of an end ask for."""
    if any(mark in text for mark in _FILES):
        text = compiled(_FILE).sub("", text)
    return tuple(one for one in _counts(at, text) if one.total is None or 0 < one.total >= one.done)


def _counts(at: int, text: str) -> Iterator[LineCount]:
    bar = compiled(_BAR).match(text) or (compiled(PERCENT).match(text) if "%|" in text else None)
    if bar is not None:
        yield from _epoch(at, bar["label"] + " ")
        for match in compiled(_COUNT).finditer(bar["label"]):
            words = Label(CountForm.WORDS, match["label"].lower())
            yield LineCount(at, words, int(match["done"]), int(match["total"]), _is_outer(match))
        label, of = _plain(bar["label"]), {"total": "100", "done": bar["percent"], **bar.groupdict()}
        yield LineCount(at, Label(CountForm.BAR, label), int(of["done"]), int(of["total"]), is_minor=is_minor(label))
        return
    has_outer = False
    for one in _beside_epochs(at, text):
        has_outer |= one.is_outer
        yield one
    if not has_outer:
        yield from _epoch(at, text)


def _beside_epochs(at: int, text: str) -> Iterator[LineCount]:
    """The counts of a line that is no bar; the number of its epoch where it stands beside another count."""
    inner = compiled(_INNER).search(text)
    if inner is not None:
        yield LineCount(at, _EPOCHS, int(inner["epoch"]), is_outer=True)
        minor = is_minor(text[: inner.start("epoch")])
        yield LineCount(at, Label(CountForm.INNER), int(inner["done"]), int(inner["total"]), is_minor=minor)
    keras = compiled(_KERAS).match(text)
    if keras is not None:
        yield LineCount(at, Label(CountForm.BAR), int(keras["done"]), int(keras["total"]))
    yield from _others(at, text)
    for match in compiled(_COUNT).finditer(text):
        minor = is_minor(text[max(0, match.start() - 24) : match.start()] + match["label"])
        words = Label(CountForm.WORDS, _plain(match["label"]))
        yield LineCount(at, words, int(match["done"]), int(match["total"]), _is_outer(match), minor)
        within = compiled(_BEHIND_OUTER).match(text, match.end()) if _is_outer(match) else None
        if within is not None:
            yield LineCount(at, Label(CountForm.INNER), int(within["done"]), int(within["total"]), is_minor=minor)
    ordinal = compiled(_ORDINAL).search(text)
    if ordinal is not None:
        of_all = None if ordinal["total"] is None else int(ordinal["total"])
        yield LineCount(at, Label(CountForm.ORDINAL), int(ordinal["done"] or ordinal["alone"]), of_all, is_outer=True)


def _epoch(at: int, text: str) -> Iterator[LineCount]:
    epoch = compiled(_EPOCH).search(text)
    if epoch is not None:
        yield LineCount(at, _EPOCHS, int(epoch["done"]), is_outer=True)


def _others(at: int, text: str) -> Iterator[LineCount]:
    """Counts that nothing calls steps: `Evaluation [ 20/251]`, `[decoding 36/36]`, the first column of a table."""
    if "/" not in text:
        return
    table = compiled(_TABLE).match(text)
    if table is not None:
        done, total = (int(table[name].replace(",", "")) for name in ("done", "total"))
        yield LineCount(at, Label(CountForm.TABLE), done, total)
        return
    match = compiled(_BRACKET).search(text) if "[" in text else None
    label = "" if match is None else match["label"] or match["name"]
    if match is not None and compiled(_NO_STEP).search(label) is None:
        done, total = int(match["done"] or match["count"]), int(match["total"] or match["of"])
        yield LineCount(at, Label(CountForm.BRACKET, label.lower()), done, total, is_minor=is_minor(label))


def is_minor(label: str) -> bool:
    """Whether a count of this name is of what comes before the work or beside it."""
    return compiled(_MINOR).search(label) is not None


@functools.lru_cache(maxsize=2)
def _counts_of(head: str) -> tuple[LineCount, ...]:
    """All counts of a log's beginning."""
    return tuple(one for at, text in enumerate(head.splitlines()) for one in counts(at, text))


def _is_outer(match: re.Match[str]) -> bool:
    return compiled(_OUTER).match(match["label"]) is not None


def _plain(label: str) -> str:
    return re.sub(r"[\W\d_]+", " ", label).strip().lower()[-60:]


def progress(readings: Sequence[LineCount], lines: Sequence[str], head: str, earlier: str) -> LastProgress | None:
    """What the counts of a log's last lines say together; `head`: its beginning, where totals are announced;
    `earlier`: as much of it as is not among the last lines."""
    if not readings:
        return None
    readings = _with_bars_of_epochs(readings, head)
    last = _last(readings)
    latest = readings[-1]
    outer = [one for one in last.values() if one.is_outer]
    main = max(outer, key=lambda one: (one.total is not None, one.at), default=None)
    if main is None:
        steps = [one for one in last.values() if not one.is_minor]
        main = max(steps, key=lambda one: (one.label.form is not CountForm.BAR, one.at, one.total or 0), default=None)
    if main is None:
        full = latest.done == latest.total or _has_result(latest.at, readings, lines)
        return LastProgress(latest.at, latest.done, latest.total, is_full=False, is_midway=not full)
    total, done = main.total, main.done
    if total is None:
        total, done = _announced(main, readings, lines, head)
    if total is None and (over := _over_all(main, readings)) is not None:
        main, total, done = over, over.total, over.done
    is_open = [
        one
        for one in last.values()
        if one is not main
        and one.total is not None
        and one.at >= latest.at - _MANY
        and not _is_nearly(
            one, readings, is_strict=one.label.form is CountForm.INNER and _counts_to_total(one, readings, head)
        )
        and not (one.is_minor and _has_result(one.at, readings, lines))
        and not (one.done == 0 and main.is_outer and _has_results(one.at, readings, lines))
    ]
    if main.total is not None and (
        _counts_from_zero(main, readings, head) if main.is_outer else _is_nearly(main, readings, is_strict=True)
    ):
        done = main.total
    full = total is not None and done >= total and not any(one.at >= main.at for one in is_open)
    full = full and _is_a_course(main, readings, head)
    if _is_bar_of_epochs(main) and main.is_outer:
        full = full and not _came_before(main, readings, earlier)
    elif main.label.form is CountForm.BAR:
        full = (
            main.done == main.total
            and main is latest
            and is_outermost(lines, main.at, head)
            and not announces_epochs(head)
        )
        full = full and not _came_before(main, readings, earlier)
    elif full and not main.is_outer:
        full = _may_be_all(main, head) and not _came_before(main, readings, earlier)
    elif full:
        full = _has_run(main, readings, lines)
    midway = total is not None and (done < total or bool(is_open))
    if total is None:
        midway = bool(is_open) and latest.done != latest.total
    return LastProgress(latest.at, done, total, is_full=full, is_midway=midway)


def _with_bars_of_epochs(readings: Sequence[LineCount], head: str) -> Sequence[LineCount]:
    """A bar that is called one of epochs, and has as many as are announced, holds the others."""
    if not any(map(_is_bar_of_epochs, readings)):
        return readings
    announced = _num_epochs(head)
    return [
        one._replace(is_outer=True) if _is_bar_of_epochs(one) and {one.total} == announced else one for one in readings
    ]


def _is_bar_of_epochs(one: LineCount) -> bool:
    return one.label.form is CountForm.BAR and one.label.words in _OF_EPOCHS


def _last(readings: Sequence[LineCount]) -> dict[Label, LineCount]:
    """The last count of each label.  `Epoch 50/50` and, below it, `validation of epoch 50` are one."""
    last: dict[Label, LineCount] = {}
    for one in readings:
        known = last.get(one.label)
        is_same = known is not None and one.total is None and known.total is not None and one.done == known.done
        last[one.label] = known._replace(at=one.at) if known is not None and is_same else one
    return last


def _over_all(main: LineCount, readings: Sequence[LineCount]) -> LineCount | None:
    """The last count of steps that goes on from epoch to epoch, and so holds them: `epoch: 216, iter: 80000/80000`."""
    epochs = [(one.at, one.done) for one in readings if one.label == main.label]
    changes = [at for (_, before), (at, done) in itertools.pairwise(epochs) if done > before]
    for one in reversed(readings):
        if one.is_outer or one.is_minor or one.total is None or one.label.form in {CountForm.BAR, CountForm.INNER}:
            continue
        course = [(r.at, r.done) for r in readings if r.label == one.label and r.total == one.total]
        is_rising = all(a < b for (_, a), (_, b) in itertools.pairwise(course))
        if is_rising and any(course[0][0] < at <= course[-1][0] for at in changes):
            return one
    return None


def _has_result(at: int, readings: Sequence[LineCount], lines: Sequence[str]) -> bool:
    """Whether the program wrote a line that counts nothing behind this one: an evaluation prints every tenth batch of
    its own, and then what came out."""
    counted = {one.at for one in readings}
    return any(
        text.strip() and place not in counted and not is_of_a_library(text)
        for place, text in enumerate(lines[at + 1 :], start=at + 1)
    )


def _has_results(at: int, readings: Sequence[LineCount], lines: Sequence[str]) -> bool:
    """Whether a bar that never moved stands in front of a table of results: it was drawn once, and is of no use."""
    behind = [text for text in lines[at + 1 :] if text.strip()]
    return readings[-1].at == at and sum(compiled(_RESULT).search(text) is not None for text in behind) >= _MANY_RESULTS


def _is_a_course(main: LineCount, readings: Sequence[LineCount], head: str) -> bool:
    """Whether it was seen to go up to a total that stayed the same: `run 1/1` and `item 7/7` say nothing of an end."""
    same = [one for one in readings if one.label == main.label]
    begun = [one for one in _counts_of(head) if one.label == main.label]
    totals = {one.total for one in same}
    if main.total is not None and len(totals) > 1 and sum(one.total == main.total for one in same) == 1:
        return False
    num = len({one.done for one in (*begun, *same) if main.total is None or one.total == main.total})
    inner = {(one.label, one.done) for one in readings if not one.is_outer and one.total is not None}
    return num >= (_FEW_EPOCHS if main.is_outer else _MANY) or (main.is_outer and len(inner) >= _MANY)


def _may_be_all(main: LineCount, head: str) -> bool:
    """Whether this count of steps can be that of the whole run: no batches, and no epochs are announced."""
    return not ("batch" in main.label.words and "epoch" in head.lower()) and not announces_epochs(head)


def _num_epochs(head: str) -> set[int]:
    """The numbers of epochs that the beginning announces."""
    return {int(match[1] or match[2]) for match in compiled(_NUM_EPOCHS).finditer(head)}


def announces_epochs(head: str) -> bool:
    """Whether the beginning announces epochs, of which a count of steps would be a part."""
    return any(number > 1 for number in _num_epochs(head))


def _has_run(main: LineCount, readings: Sequence[LineCount], lines: Sequence[str]) -> bool:
    """Whether the last epoch has shown about as much as the one before: some print their count when it begins."""
    places = [one for one in readings if one.label == main.label and one.is_outer]
    begins: list[int] = []
    for before, one in zip([None, *places], places, strict=False):
        if before is None or before.done != one.done:
            begins.append(one.at)
    if compiled(_EPOCH_ENDS).search(lines[places[-1].at]) is not None:
        return True
    if any(one.at == places[-1].at and not one.is_outer and one.done == one.total for one in readings):
        return True  # `epoch 50/50, batch 2501/2501`
    ends = [*begins[1:], len(lines)]
    sizes = [sum(bool(line.strip()) for line in lines[a:b]) for a, b in zip(begins, ends, strict=True)]
    if len(sizes) > 1:
        return sizes[-1] >= _ABOUT_AS_MUCH * min(sizes[-1 - _NUM_BEFORE : -1])
    inner = [one for one in readings if not one.is_outer and one.total is not None and one.at >= begins[-1]]
    return bool(inner)  # how long the epochs before were is not known


def _counts_to_total(one: LineCount, readings: Sequence[LineCount], head: str) -> bool:
    """Whether a count beside that of epochs comes to its total by equal steps, never seen at 0: `10/60`, `60/60`."""
    if one.label.form is not CountForm.INNER:
        return False
    counts_done = [r.done for r in (*_counts_of(head), *readings) if r.label == one.label and r.total == one.total]
    step = counts_done[-1] - counts_done[-2] if len(counts_done) > 1 else 0
    return one.total is not None and step > 0 and 0 not in counts_done and one.total % step == one.done % step == 0


def _is_nearly(one: LineCount, readings: Sequence[LineCount], *, is_strict: bool = False) -> bool:
    """Whether the next line that the program would print lies behind its end: it prints every tenth step."""
    if one.total is None or one.done >= one.total:
        return True
    same = [r.done for r in readings if r.label == one.label and r.total == one.total]
    step = same[-1] - same[-2] if len(same) > 1 else 0
    if step == 0 and len(same) > 1 and set(same) == {one.done}:
        step = one.done  # one count of each evaluation
    return step > 1 and one.done + step >= one.total + is_strict


def _came_before(main: LineCount, readings: Sequence[LineCount], earlier: str) -> bool:
    """Whether this count was full before and began again: then it is a part of something larger."""
    same = [one.done for one in readings if one.label == main.label]
    # several processes that write into one log are a little apart
    return any(a - b > _MANY and a >= 2 * b for a, b in itertools.pairwise(same)) or any(
        one.label == main.label and one.done == one.total and one.done == main.done for one in _counts_of(earlier)
    )


def _counts_from_zero(main: LineCount, readings: Sequence[LineCount], head: str) -> bool:
    first = next((one for one in _counts_of(head) if one.is_outer), None)
    first = first or next((one for one in readings if one.is_outer), None)
    return first is not None and first.done == 0 and main.total is not None and main.done == main.total - 1


def _announced(
    main: LineCount, readings: Sequence[LineCount], lines: Sequence[str], head: str
) -> tuple[int | None, int]:
    """The number of epochs that the beginning announces, and how many are done, by numbers from 0 or from 1."""
    begun = [one for one in _counts_of(head) if one.is_outer]
    totals = _num_epochs(head) - {0}
    if not totals and compiled(_EPOCH_ENDS).search(lines[main.at]) is not None:
        totals = {one.total for one in begun if one.label == main.label and one.total is not None}
    if len(totals) != 1:
        return None, main.done
    total = totals.pop()
    same = [one for one in begun if one.total is None] or begun  # `Epoch 1/3` and `epoch: 0` stand in one log
    first = next((one.done for one in same), None)
    if first is None:
        first = min(one.done for one in readings if one.is_outer)
    done = main.done + (1 if first == 0 else 0)
    return (total, done) if done <= total else (None, main.done)
