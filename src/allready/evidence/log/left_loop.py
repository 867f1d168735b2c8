"""A program that left its loop: the lines that it wrote again and again are over, and others follow, each once."""

from collections import Counter
from collections.abc import Callable, Sequence

from allready.evidence.log import closing_words as wording
from allready.evidence.log import languages
from allready.evidence.log.fronts import without_front
from allready.evidence.log.trouble import is_bad
from allready.patterns import compiled

MIN_REPEATS = 5
"""A line that stands so often, with other numbers, is of a loop."""

_MIN_LINES = 50
"""Lines of loops: a few alike are a table or a list of settings."""

_MAX_BEHIND = 40
"""Lines behind the last one of a loop: more is another work."""

_STYLE = r"\x1b\[[0-9;]{0,12}[A-Za-z]"
_NUMBER = r"0x[0-9a-f]{1,16}|[-+]?\d[\d.,:eE+-]*"
_FILL = r"[\s█▏▎▍▌▋▊▉━╸╺=#>.-]+"
LETTERS = r"[^\W\d_]{2}"

_MAX_CHARS = 400

_NOT_OF_ALL = (
    r"(?i)\b(?:limit\w*|exceed\w*|budget|max\w*|epochs?|steps?|iter\w*|batch\w*|fold|round|phase|stage|warm-?up|eval\w*|valid\w*|test\w*|ranks?|"
    r"workers?|so far)\b"
)
_WHOLE_TIME = (
    r"(?i)\b(?:training|execution|run|program|script|job|total)[ _](?:time|took|duration|runtime)\b[^\d]{0,40}\d"
)
"""How long all of it took, which is printed behind it."""

_BARE = (
    rf"(?i)^\W*(?:(?:all )?(?:finish(?:ed)?|done|completed?)|{languages.DONE_ALONE})"
    r"(?:\W*$|[.!] (?=[^.]{0,80}\b(?:saved|written|results?|report|output)\b))"
)


_TRAINS = (
    r"(?i)\b(?:\w{0,24}_)?(?:loss(?:es)?|lr|learning[ _]rate|grad(?:ient)?[ _]?norm|epochs?|reward|throughput|steps?)\b"
    rf".{{0,40}}?\d|{languages.OF_A_STEP}"
)


def closing_line(lines: Sequence[str], is_noise: Callable[[str], bool]) -> str | None:
    """The line that says how it went, behind the last line of a loop; None where the log ends within a loop, in
    trouble, or with the beginning of something else.

    `lines`: all that is kept of the log, its beginning and its end.
    """
    texts = [text for text in map(plain, lines) if compiled(LETTERS).search(text) is not None]
    shapes = [form(text) for text in texts]
    times = Counter(shapes)
    last = next((at for at in range(len(shapes) - 1, -1, -1) if times[shapes[at]] >= MIN_REPEATS), None)
    if last is None or sum(number for number in times.values() if number >= MIN_REPEATS) < _MIN_LINES:
        return None
    behind = texts[last + 1 :]
    is_logged = is_noise(texts[last])  # the program itself writes as libraries do
    own = [text for text in behind if is_logged or not is_noise(text)]
    if not 0 < len(own) <= _MAX_BEHIND or any(map(_denies, behind)):
        return None
    if wording.begins().search(own[-1]) is not None:
        return None
    for text, above in zip(reversed(own), [*reversed(own[:-1]), ""], strict=True):
        is_bare = wording.bare().match(without_front(text)) is not None
        is_of_above = is_bare and wording.names_an_act().search(above) is not None
        if times[form(text)] == 1 and _is_of_whole_run(text) and not is_of_above:
            return text
    return None


def trains(lines: Sequence[str]) -> bool:
    """Whether a line that came again and again is of a training."""
    return bool(training_lines(lines))


def training_lines(lines: Sequence[str]) -> list[int]:
    """The places of the lines of a training that came again and again."""
    forms = {at: form(text) for at, text in enumerate(map(plain, lines)) if compiled(_TRAINS).search(text) is not None}
    times = Counter(forms.values())
    return [at for at, one in forms.items() if times[one] >= MIN_REPEATS]


def plain(line: str) -> str:
    """The beginning of the line without colours."""
    return compiled(_STYLE).sub("", line[:_MAX_CHARS]).strip()


def form(text: str) -> str:
    """What a line is without its numbers and bars."""
    return compiled(_FILL).sub(" ", compiled(_NUMBER).sub("0", text))[:200]


def _denies(text: str) -> bool:
    return is_bad(text) or wording.goes_on(text) or wording.waits().search(text) is not None


def _is_of_whole_run(text: str) -> bool:
    """Whether it is about all that was done."""
    text = without_front(text)
    is_whole = (
        compiled(_WHOLE_TIME).search(text) is not None
        and compiled(_NOT_OF_ALL).search(text) is None
        and not text.startswith("|")
    )
    return (is_whole or compiled(_BARE).match(text) is not None) and not wording.denies(text)
