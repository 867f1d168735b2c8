"""How the values of flags are read: from the command line, from a PET_ variable, from the configuration file.

`KINDS` maps a kind's name to its reader.  A reader gets text and gives the value, or raises ValueError with words that
end a sentence starting with the flag: "write 5 or 5s", in the language of the process.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from allready.launch.backoff import Backoff
from allready.model.numbers import numbers_in
from allready.patterns import compiled
from allready.text.usage import usage_text

MAX_LISTED = 65_536
NCCL_LEVELS = ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
_WHOLE = r"\s*[+-]?\d{1,18}\s*"


def whole(text: str) -> int:
    """A decimal number."""
    if not compiled(_WHOLE).fullmatch(text):
        raise ValueError(usage_text("{text!r} is not a whole number", text=text))
    return int(text)


def count(text: str) -> int:
    """A whole number from 0."""
    value = whole(text)
    if value < 0:
        raise ValueError(usage_text("{value} is below {least}", value=value, least=0))
    return value


def positive(text: str) -> int:
    """A whole number from 1."""
    value = whole(text)
    if value < 1:
        raise ValueError(usage_text("{value} is below {least}", value=value, least=1))
    return value


def number(text: str) -> float:
    """Seconds from 0: `0.1`, `5s`."""
    try:
        value = float(text.strip().removesuffix("s"))
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e8:
        raise ValueError(usage_text("{text!r} is not a number of seconds from 0", text=text))
    return value


def seconds(text: str) -> float:
    """Seconds above 0."""
    value = number(text)
    if value == 0:
        raise ValueError(usage_text("0 seconds are no time; write for example 5"))
    return value


def seconds_or_auto(text: str) -> float | None:
    """Seconds above 0, or `auto` (None)."""
    return None if text.strip() == "auto" else seconds(text)


def nodes(text: str) -> tuple[int, int]:
    """`4` or `2:4`: fewest and most nodes."""
    low, colon, high = text.partition(":")
    try:
        least = positive(low)
        most = positive(high) if colon else least
    except ValueError:
        raise ValueError(
            usage_text("{text!r} is not a number of nodes; write 4, or 2:4 for two to four", text=text)
        ) from None
    if least > most:
        raise ValueError(usage_text("{text!r}: the fewest nodes are more than the most", text=text))
    return least, most


def nproc(text: str) -> int | str:
    """A number of ranks, or gpu, cpu, xpu or auto."""
    word = text.strip()
    if word in {"gpu", "cpu", "xpu", "auto"}:
        return word
    try:
        return positive(word)
    except ValueError:
        raise ValueError(usage_text("{text!r}: give a number from 1, or gpu, cpu, xpu or auto", text=text)) from None


def names(text: str) -> tuple[str, ...]:
    """`a,b,c`; blanks around a name are dropped, so are empty names."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise ValueError(usage_text("names nothing; write for example a,b"))
    return found


def numbers(text: str) -> tuple[int, ...]:
    """`0,2-5`, sorted, each once."""
    found = numbers_in(text, below=MAX_LISTED)
    if found is None:
        raise ValueError(usage_text("{text!r} is not a list of ranks; write 0,2,5-7", text=text))
    return tuple(sorted(found))


def backoff(text: str) -> Backoff:
    """`BASE`, `BASE,MOST` or `BASE,MOST,JITTER`: seconds, seconds, share of the wait from 0 to 1."""
    parts = text.split(",")
    words = usage_text(
        "{text!r}: write BASE,MOST,JITTER, for example 1,60,0.25 (seconds, seconds, a share from 0 to 1)", text=text
    )
    if len(parts) > 3:
        raise ValueError(words)
    try:
        values = [number(part) for part in parts]
    except ValueError:
        raise ValueError(words) from None
    base = values[0]
    most = values[1] if len(values) > 1 else max(base, Backoff().most_s)
    jitter = values[2] if len(values) > 2 else Backoff().jitter
    if most < base or jitter > 1:
        raise ValueError(words)
    return Backoff(base_s=base, most_s=most, jitter=jitter)


def level(text: str) -> str:
    """A level of NCCL_DEBUG."""
    word = text.strip().upper()
    if word not in NCCL_LEVELS:
        raise ValueError(
            usage_text("{text!r} is not a level of NCCL; there are {known}", text=text, known=", ".join(NCCL_LEVELS))
        )
    return word


def streams(text: str) -> dict[int, int]:
    """torchrun's `3` or `0:3,1:2`: local rank (-1: all) -> 0 none, 1 stdout, 2 stderr, 3 both."""
    if re.fullmatch(r"[0-3]", text):
        return {-1: int(text)}
    if re.fullmatch(r"\d{1,4}:[0-3](,\d{1,4}:[0-3])*", text):
        return {int(rank): int(value) for rank, _, value in (part.partition(":") for part in text.split(","))}
    raise ValueError(usage_text("{text!r}: write 0, 1, 2 or 3 for all ranks, or 0:3,1:2 by local rank", text=text))


def settings(text: str) -> dict[str, str]:
    """torchrun's `key=value,key=value`."""
    found: dict[str, str] = {}
    for part in text.split(",") if text.strip() else []:
        key, _, value = part.partition("=")
        if not key.strip() or not value.strip():
            raise ValueError(usage_text("{text!r}: write KEY=VALUE,KEY=VALUE", text=text))
        found[key.strip()] = value.strip()
    return found


def text(value: str) -> str:
    """As it stands."""
    if "\x00" in value:
        raise ValueError(usage_text("holds a zero byte"))
    return value


KINDS: dict[str, Callable[[str], Any]] = {
    reader.__name__: reader
    for reader in (
        whole, count, positive, number, seconds, seconds_or_auto, nodes, nproc, names, numbers, backoff, level, streams,
        settings, text,
    )
}  # fmt: skip
