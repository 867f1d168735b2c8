"""Words of torch's watchdog that a terminal, a web page or a collector of logs broke into several lines, put together.

Only where the pieces give one of its sentences from its beginning to its end: then nothing else can be meant.
"""

import itertools
from collections.abc import Iterator, Sequence

from allready.evidence.log.line import Line
from allready.patterns import compiled

MAX_PIECES = 8
_MAX_BETWEEN = 64  # lines of other ranks that may stand between the pieces of one
_BEGUN = (
    r"Watchdog caught|Caught collective operation|Timeout at NCCL|Exception \(either|"
    r"NCCL error is detected|[Ff]ailure detected by|watchdog got stuck"
)
_WORDS = ("atchdog", "aught coll", "Timeout at NCCL", "Exception (either", "error is detected", "ailure detected")
"""Of lines that may begin one: looked for first, in every line of a log."""

_WHOLE = (
    r"(?:(?:Watchdog c|C)aught collective operation timeout: Work\w{1,20}\("
    r"(?:\w{1,40}=(?:\w{1,60}|\[(?:\d{1,12}(?:, \d{1,12}){0,16})?\]), ){0,8}Timeout\(ms\)=\d{1,15}\) "
    r"ran for \d{1,15} milliseconds before timing out\.?|"
    r"(?:Timeout at NCCL|(?:Exception \(either an error or timeout\) detected|NCCL error is detected) by watchdog at) "
    r"work: -?\d{1,19}, last enqueued NCCL work: -?\d{1,19}, last completed NCCL work: -?\d{1,19}\.|"
    r"[Ff]ailure detected by watchdog at work sequence id: -?\d{1,19} PG status: last enqueued work: -?\d{1,19}, "
    r"(?:last started work: -?\d{1,19}, )?last completed work: -?\d{1,19})"
)
_TAG = (
    r"\[(?:PG (?:ID \d{1,9} PG GUID )?[^\s()\[\]]{1,160} ?(?:\([^\s()\[\]]{0,160}\))? ?)?(?<![^\s\[])"
    r"Rank \d{1,7}\] {1,3}"
)
"""What stands in front of a sentence: its process group, and the rank in it."""

_OPEN = (
    r"ProcessGroupNCCL's watchdog got stuck for \d{1,9} seconds without making progress in monitoring enqueued "
    r"collectives\."
)
"""A sentence that others follow in its line: it is whole wherever the piece ends."""

_HEAD = r"(?:\[[^\]]{0,160}\]? {0,2}){0,2}(?:\w{1,20}(?:'\w?)?(?: |$)){0,5}"
_MAX_HEAD = 200
_END = r"""[\s"'},]{0,20}$"""


def join(lines: Sequence[Line]) -> frozenset[int]:
    """Put the pieces into the line that begins; the indices of the others, which say nothing any more."""
    taken: set[int] = set()
    is_open = False  # the line before has begun and did not end
    for at, line in enumerate(lines):
        may_begin = line.prefix.kind != "nccl" and at not in taken
        if not may_begin or not (_is_head(line) or (_begins(line) and not _is_whole(line.rest))):
            is_open = False
            continue
        places, whole = _whole(lines, at, is_alone=not is_open)
        is_open = whole is None
        if whole is not None:
            line.text = line.text[: len(line.text) - len(line.rest)] + whole
            line.prefix = line.prefix._replace(rest=whole)
            taken |= set(places)
            for place in places:
                lines[place].is_understood = True
    return frozenset(taken)


def _begins(line: Line) -> bool:
    """Whether there is the beginning of a sentence."""
    text = line.rest
    return (
        line.prefix.kind != "nccl"
        and any(word in text for word in _WORDS)
        and compiled(_BEGUN).search(text) is not None
    )


def is_watchdogs(text: str) -> bool:
    """Whether there are words of torch's watchdog, whose pieces only `join` puts together."""
    return any(word in text for word in _WORDS)


def _is_head(line: Line) -> bool:
    """Whether the line ends before the sentence says what it is."""
    return (
        line.prefix.kind == "glog" and len(line.rest) < _MAX_HEAD and compiled(_HEAD).fullmatch(line.rest) is not None
    )


def _whole(lines: Sequence[Line], at: int, *, is_alone: bool) -> tuple[list[int], str | None]:
    """Where the other pieces are, and the text of all; None when they make no whole.

    is_alone: no other sentence is open, so that pieces without a name are this line's.
    """
    places: list[int] = []
    pieces = [lines[at].rest]
    for place in _following(lines, at, is_alone=is_alone):
        places.append(place)
        pieces.append(lines[place].rest)
        made = [text for text in _joined(pieces) if _ends(text)]
        if made:
            return places, next((text for text in made if _has_tag(text)), made[0])
        if len(places) >= MAX_PIECES:
            break
    return [], None


def _is_whole(text: str) -> bool:
    """Whether a sentence stands in one piece already."""
    return compiled(_WHOLE).search(text) is not None or compiled(_OPEN).search(text) is not None


def _ends(text: str) -> bool:
    """Whether the pieces give a sentence from its beginning to its end."""
    found = compiled(_WHOLE).search(text)
    return (found is not None and compiled(_END).match(text, found.end()) is not None) or compiled(_OPEN).search(
        text
    ) is not None


def _has_tag(text: str) -> bool:
    """Whether the tag in front of the sentence is whole as well."""
    tag, whole = compiled(_TAG).search(text), compiled(_WHOLE).search(text) or compiled(_OPEN).search(text)
    return tag is not None and whole is not None and tag.end() == whole.start()


def _following(lines: Sequence[Line], at: int, *, is_alone: bool) -> Iterator[int]:
    """The lines that may go on with this one: of its rank, or right behind it and without words in front."""
    opener = lines[at]
    last = opener.number
    for place in range(at + 1, min(len(lines), at + 1 + _MAX_BETWEEN)):
        line = lines[place]
        mine, its = line.prefix, opener.prefix
        if mine.rank is not None and mine.rank != its.rank:
            continue
        is_next = line.number <= last + 1 and is_alone
        is_bare = mine.writer == (None, None, None) or mine.writer == its.writer
        if mine.kind or not line.rest.strip() or not is_bare:
            return
        if _begins(line) and not (_is_head(opener) and place == at + 1):
            return
        if not is_next and mine.rank is None:
            return
        last = line.number
        yield place


def _joined(pieces: Sequence[str]) -> Iterator[str]:
    """Every way to put pieces together: a blank or nothing where they met."""
    between = [
        (" ",) if before.endswith((" ", "\t")) or after.startswith((" ", "\t")) else ("", " ")
        for before, after in itertools.pairwise(pieces)
    ]
    words = [piece.strip() for piece in pieces]
    for blanks in itertools.product(*between):
        yield (words[0] + "".join(blank + word for blank, word in zip(blanks, words[1:], strict=True))).lstrip()
