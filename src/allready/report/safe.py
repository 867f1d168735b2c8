"""Text that came from elsewhere (host names, log lines, errors), made harmless for a terminal and a page.

Control characters would move the cursor, recolour or retitle a terminal; direction marks would make one name look
like another.  They are shown as escapes, so that nothing is lost.
"""

import functools
import re
import unicodedata

from allready.patterns import compiled

_BAD = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_ASCII = {"…": "...", "→": "->", "·": "-", "–": "-", "µ": "u", "×": "x", "±": "+/-", "✓": "ok", "✗": "x"}


def plain(text: str, *, most: int = 4000, keep_newlines: bool = False) -> str:
    """`text` on one line (unless `keep_newlines`) without control or direction characters, cut after `most`."""
    cut = len(text) - most if len(text) > most else 0
    if cut:
        text = text[:most]
    if text.isascii() and text.isprintable():
        clean = text
    else:
        clean = "".join(_visible(c, keep_newlines=keep_newlines) for c in text)
    return f"{clean} … +{cut}" if cut else clean


def _visible(char: str, *, keep_newlines: bool) -> str:
    if char == "\n" and keep_newlines:
        return char
    if char == "\t":
        return " "
    if unicodedata.category(char) not in _BAD:
        return char
    return char.encode("unicode_escape").decode("ascii")


@functools.cache
def _bad_in_json() -> re.Pattern[str]:
    """The same beyond ASCII, whose controls JSON escapes itself; asking for each character's category is slow."""
    return re.compile(
        "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
        "\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
        "\U000e0001\U000e0020-\U000e007f]"
    )


def safe_json(data: bytes) -> bytes:
    """JSON whose strings say the same, with every such character as an escape: it may be printed on a terminal."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return _bad_in_json().sub(_escaped, data.decode("utf-8")).encode("utf-8")


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def encodable(text: str, encoding: str) -> str:
    """`text` with what `encoding` lacks replaced by a near neighbour, else by `?`."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        text = "".join(_ASCII.get(c, c) for c in text)
        try:
            return text.encode(encoding, "replace").decode(encoding)
        except LookupError:
            return text.encode("ascii", "replace").decode("ascii")
    return text


def width(text: str) -> int:
    """Columns that `text` takes on a terminal: two for Chinese, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(_char_width(c) for c in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """`text` filled with blanks to `columns` on a terminal; `right` puts the text at the right."""
    blanks = " " * max(0, columns - width(text))
    return blanks + text if right else text + blanks


def shorten_left(text: str, columns: int) -> str:
    """As `shorten`, but cut at the left: of a path its end tells most."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for char in reversed(text):
        used += _char_width(char)
        if used > columns - 1:
            break
        kept.append(char)
    return "…" + "".join(reversed(kept)) if columns > 0 else ""


def shorten(text: str, columns: int) -> str:
    """`text` cut so that it takes at most `columns` on a terminal, with `…` where it was cut."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for char in text:
        used += _char_width(char)
        if used > columns - 1:
            break
        kept.append(char)
    return "".join(kept) + "…" if columns > 0 else ""


_UNITS = (
    r"(?P<blank>\s+)|[\u3008-\u3010\u201c\u2018\uff08]*(?:[^\s\u2e80-\uffef]+|[\u2e80-\uffef])?"
    r"[\u3001\u3002\u3009-\u3011\u201d\u2019\uff01\uff09\uff0c\uff1a\uff1b\uff1f]*"
)
"""What a line may not break within: words, names and numbers, one Chinese character, each with its punctuation."""


def wrapped(text: str, columns: int, *, most: int | None = None) -> list[str]:
    """`text` in lines of this width, of the last of `most` only what fits: broken at blanks and between Chinese
    characters, within a word only where that is longer than a line, behind a comma if it has one."""
    if columns < 2:
        return [shorten(text, columns)] if text else []
    lines, line = [], ""
    for unit in compiled(_UNITS).finditer(text):
        part = unit[0]
        if width(line) + width(part) <= columns:
            line += part
            continue
        if line.strip():
            lines.append(line.rstrip())
        line = "" if unit["blank"] else part
        while width(line) > columns:
            cut = next(at for at in range(len(line), 0, -1) if at == 1 or width(line[:at]) <= columns)
            cut = max(line.rfind(",", cut // 2, cut) + 1, 0) or cut
            lines.append(line[:cut])
            line = line[cut:]
    lines += [line.rstrip()] if line.strip() else []
    if most is None or len(lines) <= most:
        return lines
    rest = text[_end_of(lines[: most - 1], text) :].lstrip()
    return [*lines[: most - 1], shorten(rest, columns)]


def _end_of(lines: list[str], text: str) -> int:
    """Where in `text` the last of its first lines ends."""
    at = 0
    for line in lines:
        at = text.index(line, at) + len(line)
    return at
