"""A program that left its loop: the lines that it wrote again and again are over, and others follow, each once."""

import re
from collections import Counter
from collections.abc import Callable, Sequence

from allready.evidence.log import closing_words as wording
from allready.evidence.log.trouble import is_bad

_TIMES = 5
"""A line that stands so often, with other numbers, is of a loop."""

_MIN_LINES = 50
"""Lines of loops: a few alike are a table or a list of settings."""

_MAX_BEHIND = 40
"""Lines behind the last one of a loop: more is another work."""

_STYLE = re.compile(r"\x1b\[[0-9;]{0,12}[A-Za-z]")
_NUMBER = re.compile(r"0x[0-9a-f]{1,16}|[-+]?\d[\d.,:eE+-]*")
_FILL = re.compile(r"[\s█▏▎▍▌▋▊▉━╸╺=#>.-]+")
_LETTERS = re.compile(r"[^\W\d_]{2}")

_LAST_WORD = re.compile(
    r"\b(?:finish(?:ed)?|done|completed?|exit(?:ing|ed)?|ended|saved|saving|written|stored|exported|generated)\b|"
    r"完成|结束|保存|完了|완료",
    re.IGNORECASE,
)
_SUM = re.compile(
    r"(?:\b(?:final(?:ly)?|overall)\b|(?<!new )\bbest\b(?!.{0,40}\bso far\b)|"
    r"\btotal (?:\w{1,20} )?(?:time|duration|runtime|elapsed)\b|"
    r"\b(?:training|run|execution|inference|evaluation|processing) (?:time|took)\b).*\d|"
    r"[总最]终?(?:耗时|用时|结果|准确率|佳).*\d",
    re.IGNORECASE,
)
_OF_A_STATE = re.compile(
    r"check-?point|\bckpt|weights?\b|\bmodel\b|optimi[sz]er|state[_ ]?dict|权重|模型|检查点", re.IGNORECASE
)
"""What is saved again and again while the work goes on."""


def last_word(lines: Sequence[str], is_noise: Callable[[str], bool]) -> str | None:
    """The line that says how it went, behind the last line of a loop; None where the log ends within a loop, in
    trouble, or with the beginning of something else.

    `lines`: all that is kept of the log, its beginning and its end.
    """
    texts = [text for text in (_STYLE.sub("", line).strip() for line in lines) if _LETTERS.search(text) is not None]
    shapes = [_shape(text) for text in texts]
    times = Counter(shapes)
    last = next((at for at in range(len(shapes) - 1, -1, -1) if times[shapes[at]] >= _TIMES), None)
    if last is None or sum(number for number in times.values() if number >= _TIMES) < _MIN_LINES:
        return None
    behind = [(text, shape) for text, shape in zip(texts[last + 1 :], shapes[last + 1 :], strict=True)]
    is_logged = is_noise(texts[last])  # the program itself writes as libraries do
    own = [(text, shape) for text, shape in behind if is_logged or not is_noise(text)]
    if not 0 < len(own) <= _MAX_BEHIND or any(_denies(text) for text, _ in behind):
        return None
    if wording.begins().search(own[-1][0]) is not None:
        return None
    return next((text for text, shape in reversed(own) if times[shape] == 1 and _tells(text)), None)


def _shape(text: str) -> str:
    return _FILL.sub(" ", _NUMBER.sub("0", text))[:200]


def _denies(text: str) -> bool:
    return is_bad(text) or wording.goes_on(text) or wording.waits().search(text) is not None


def _tells(text: str) -> bool:
    """Whether it is a result or a last word, and not about a state that is saved on the way."""
    if text.startswith("|"):
        return False  # a row of a table that may go on
    if _SUM.search(text) is not None:
        return True
    is_of_several = len(_LAST_WORD.findall(_NUMBER.sub(" ", text))) > 1  # ranks that write into one line
    is_of_all = not is_of_several and _OF_A_STATE.search(text) is None and not wording.denies(text)
    return is_of_all and _LAST_WORD.search(text) is not None
