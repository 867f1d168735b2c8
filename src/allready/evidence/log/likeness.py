"""Whether the end of a log reads like that of a run that is over, where no rule says how it ended.

Words differ from program to program and show little; what a log itself makes of its end tells more.  A program repeats
itself while it works: at most places of its log there is a line that it has written many times, with other numbers.
Where a log was cut, its end is such a place.  Where its last line is of a form that this log hardly has, the loop was
left; and where it says besides that something is done, saved or found, and begins nothing, it reads like a good end.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from allready.evidence.log import closing_words as wording
from allready.evidence.log.left_loop import TIMES, form, plain
from allready.evidence.log.trouble import is_of_a_library

_MIN_LOOP, _MIN_LINES = 20, 100
"""Lines of a loop, and of the log: with fewer, one line that is new is nothing unusual."""

_MAX_ALIKE = 0.2
"""The share of places that are as unusual as the end.  From a half to a tenth it makes little difference: most cut logs
are far above, most whole ones far below."""

_LAST, _COUNT_LINES, _NUM_COUNTS = 3, 60, 4
_NEW_LINES, _SELDOM = 40, 2
_OWN_SHARE = 0.3
"""Where less of a log is the program's own, it writes as libraries do."""

_LETTERS = re.compile(r"[^\W\d_]{2}|[\u3040-\uffdc]")
_DONE = re.compile(
    r"\b(?:done|stopped|closed|shut ?down|finish\w*|completed?|completes|success\w*|ended|bye|goodbye|concluded?|"
    r"all good|exiting|the end|fin)\b|"
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
    r"weighted|accuracy|auc|f1|bleu|m?ap|miou|precision|recall|throughput|validation|dice|iou|elapsed|took|duration|runtime|time|peak)\b|"
    r"最佳|最终|平均|总|测试|结果|耗时",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"[\w.~-]{0,40}[A-Za-z][\w.~-]{0,40}/[\w.~/-]{1,200}|"
    r"\b\w{1,80}\.(?:png|jpg|pdf|csv|json|pth?|ckpt|h5|pkl|np[yz]|txt|html|log|md|xlsx|bin|safetensors|onnx)\b"
)
_COUNT = re.compile(r"(?<![\d./-])(\d{1,9})\s?(?:/|of)\s?(\d{1,9})(?![\d./-])")
_BAR = re.compile(r"(\d{1,3})%\|")


class Says(StrEnum):
    """What stands at a good end, besides that its form is unusual."""

    DONE = "done"
    SAVED = "saved"
    RESULT = "result"
    FILE = "file"
    FULL = "full"


class _Own(NamedTuple):
    """A log's own lines and their forms; `loop`: the places of those that come again and again."""

    texts: Sequence[str]
    forms: Sequence[str]
    times: Counter[str]
    loop: Sequence[int]


def of(raw: Sequence[str]) -> tuple[Says, ...]:
    """Why it reads like a good end; () where it does not.

    `raw`: what is kept of a log whose last line has its end, line by line, of a bar every state.
    """
    last = next((text for text in map(plain, reversed(raw)) if _is_own(text)), "")
    if not last or _goes_on(last):  # most logs that were cut, at once
        return ()
    own = _own_lines(raw)
    if own is None or _goes_on(own.texts[-1]) or not _is_unusual(own):
        return ()
    return tuple(_said(own))


def _is_own(text: str) -> bool:
    return _LETTERS.search(text) is not None and not is_of_a_library(text)


def _own_lines(raw: Iterable[str]) -> _Own | None:
    """The lines that say something, without those of libraries; None where they are few, or do not come again."""
    texts = [text for text in map(plain, raw) if _LETTERS.search(text) is not None]
    forms = list(map(form, texts))
    if len(forms) - len(set(forms)) < _MIN_LOOP:
        return None
    one_of = dict(zip(forms, texts, strict=True))
    of_libraries = {one for one, text in one_of.items() if is_of_a_library(text)}
    own = [at for at, one in enumerate(forms) if one not in of_libraries]
    if len(own) >= _OWN_SHARE * len(texts):
        texts, forms = [texts[at] for at in own], [forms[at] for at in own]
    times = Counter(forms)
    loop = [at for at, one in enumerate(forms) if times[one] >= TIMES]
    return _Own(texts, forms, times, loop) if len(forms) >= _MIN_LINES and len(loop) >= _MIN_LOOP else None


def _goes_on(last: str) -> bool:
    """Whether the last line begins something, counts a step, waits, or announces what is to come."""
    if last.rstrip().endswith((":", "...", "…", ",")) or wording.goes_on(last):
        return True
    return any(words().search(last) is not None for words in (wording.begins, wording.waits))


def _is_unusual(own: _Own) -> bool:
    """Whether few lines from the first of the loop to its last one are of a form as rare as the last line's."""
    rare = own.times[own.forms[-1]]
    places = range(own.loop[0], min(own.loop[-1], len(own.forms) - 2) + 1)
    return sum(own.times[own.forms[at]] <= rare for at in places) <= _MAX_ALIKE * len(places)


def _said(own: _Own) -> Iterable[Says]:
    """What its last lines say, or those behind the loop that are new."""
    first = max(len(own.forms) - _NEW_LINES, own.loop[-1] + 1)
    new = [own.texts[at] for at in range(first, len(own.forms)) if own.times[own.forms[at]] <= _SELDOM]
    last = own.texts[-_LAST:]
    found = ((Says.DONE, _DONE, last), (Says.SAVED, _SAVED, [*last[-1:], *new]), (Says.RESULT, _RESULT, last))
    for says, pattern, texts in found:
        if any(pattern.search(wording.without_paths(text)) is not None for text in texts):
            yield says
    if any(_PATH.search(text) is not None for text in new):
        yield Says.FILE
    counting = own.texts[-_COUNT_LINES:]
    counts = [(int(done), int(total)) for text in counting for done, total in _COUNT.findall(text)][-_NUM_COUNTS:]
    if any(done == total > 1 for done, total in counts) or [share for text in counting for share in _BAR.findall(text)][
        -1:
    ] == ["100"]:
        yield Says.FULL
