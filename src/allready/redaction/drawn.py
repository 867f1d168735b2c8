"""Words that a generator of keys draws: capitals, small letters and digits change in them as in no name."""

import base64
import re

from allready.patterns import compiled

KINDS = r"[a-z]+|[A-Z]+|[0-9]+"
_MAY_BE_WORD = r"[A-Z]?[a-z]{3,}"
_ALONE = r"[A-Za-z0-9]{30,512}|(?=[^+/]{0,39}[+/])[A-Za-z0-9+/]{40}"
_CALLED = (
    r"(?i:(?:key|token|secret|auth|pass|creds?|credentials?|code|cookie)|user/pass|\b(?:otp|pin|salt|login|sess(?:ion)?_?id)"
    r"|password \w{1,40})[\"']?(?:[ \t]{0,3}[:=][ \t]{0,3}|[ \t]{1,2}(?:is |was )?)(?:\w{1,40}[ \t]?[:/][ \t]?)?[\"']?$"
)
_DIGEST = r"(?i:(?:sha\d{1,3}|md5|fingerprint)[:=-]|[$@%])$"


def is_random(word: str, *, with_digits: bool = True) -> bool:
    """Whether letters and digits change as often as in a drawn key: names and paths change at their separators only."""
    bare = re.sub(r"[^A-Za-z0-9]", "", word)
    digits = sum(c.isdecimal() for c in bare)
    if re.fullmatch(r"[0-9a-f]{32,}", bare):
        return 3 < digits < len(bare) - 3
    upper, lower = sum(c.isupper() for c in bare), sum(c.islower() for c in bare)
    if len(bare) < 20 or min(upper, lower) < 2 or (digits < 2 and with_digits):
        return False
    return len(compiled(KINDS).findall(bare)) >= 0.4 * len(bare)


def is_secret_alone(word: str, before: str) -> bool:
    """Whether a long word can be nothing but a key, or is one as what stands before it calls it so.

    Of a hundred drawn ones of 40 letters and digits three are not known, of letters alone twelve.
    """
    is_alone = compiled(_ALONE).fullmatch(word) is not None
    if not _is_drawn(word, 0.5 if is_alone and any(map(str.isdecimal, word)) else 0.6):
        return False
    if is_alone:
        return compiled(_DIGEST).search(before[-16:]) is None
    return "." not in word and compiled(_CALLED).search(before[before.rfind("\n") + 1 :]) is not None


def _is_drawn(word: str, most_in_words: float) -> bool:
    upper, lower = sum(map(str.isupper, word)), sum(map(str.islower, word))
    if min(upper, lower) < 3 or word.startswith("_Z"):
        return False
    if len(compiled(KINDS).findall(word)) < 0.4 * len(word):
        return False
    in_words = sum(map(len, compiled(_MAY_BE_WORD).findall(word)))
    return in_words < most_in_words * len(word) and not _is_encoded_text(word)


def _is_encoded_text(word: str) -> bool:
    """Whether it is base64 of a text: a secret in that is looked for in the text."""
    try:
        data = base64.b64decode(word + "=" * (-len(word) % 4), validate=True)
    except ValueError:
        return False
    return data.isascii() and all(byte >= ord(" ") or byte in b"\t\n\r" for byte in data)
