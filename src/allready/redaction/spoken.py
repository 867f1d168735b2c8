"""Secrets as people write them to each other: `pwd: x`, `password hunter2`, `token x`; and within encoded URLs."""

import re
from collections.abc import Callable

from allready.patterns import compiled
from allready.redaction.drawn import KINDS
from allready.redaction.places import REDACTED

_OF_PERSON = r"passw(?:or)?d|passphrase|passcode|pwd|pw|passwort|contraseña|mot de passe"
_OF_SERVICE = (
    r"(?:api|access|secret|private|license|encryption|master|cluster|deploy|munge|join|webhook|bot|admin|root|recovery)"
    r"[ _-](?:key|code|token)|token|secret|otp|pin code"
)
_IS = (
    r"(?: for [^\s:]{1,60})?(?:(?P<sign>[\"']?[ \t]{0,3}(?:[:=]|->)[ \t]{0,3}| is:? | was:? | set to | changed to )"
    r"|[ \t]{1,2})[\"'`]?(?![-\d.,:%]{1,20}(?:[\s|]|$))(?P<word>[^\s\"'`<>(){}\[\],;，。]{3,512})"
)
_WORDS = (
    r"(?i:[-\d.,:%]+[a-z]{0,3}|none|null|nil|true|false|yes|no|not|n/a|na|unset|empty|undefined|missing|redacted|hidden|"
    r"file|files|is|was|are|were|be|been|in|on|of|for|to|from|and|or|the|a|an|as|at|by|it|has|have|had|will|would|must|"
    r"may|can|could|cannot|"
    r"should|does|did|do|too|only|also|wrong|incorrect|invalid|valid|bad|required|needed|expired|expires|expiring|changed|"
    r"accepted|rejected|denied|refused|ok|okay|good|correct|set|unknown|known|found|given|provided|supplied|specified|"
    r"stored|saved|encrypted|hashed|protected|disabled|enabled|prompt|prompts|prompting|authentication|auth|based|less|"
    r"login|logins|change|reset|policy|policies|manager|store|hash|hashes|check|checks|failed|failure|failures|error|"
    r"errors|mismatch|does|doesn't|isn't|wasn't|not|never|again|here|there|below|above|with|without|when|where|if|"
    r"attempt|attempts|length|field|value|string|str|text|bytes|int|optional|option|argument|parameter|variable|"
    r"aging|quality|expiry|rotation|entry|entries|database|backend|server|please|try|user|users|account|contains)"
)
"""What follows "password" in a sentence that tells none."""
_BEHIND = (
    r"(?=[\"'`]?(?:[ \t]*(?:\r?$|[,;)\]}\n]|[\w-]{1,30}[ \t]?[:=]))"
    r"|[\"'`]?[ \t]+(?:for|on|at|of|as|to|in|and|host|user)\b)"
)
_A_PLACE = r"(?:~?\.{0,2}/|\$|%|\*{3}|x{4}|&|\||!|>|\\)"
_NAMES = r"(?:[a-z]+|\d+[a-z]{0,2})(?:[-_./:@][a-z]+\d{0,4}|[-_./:@]\d+[a-z]{0,2})*|(?:[A-Za-z]+\d{0,3})|0x[0-9a-fA-F]+"
"""Words of letters, and of numbers between their separators: names of models and hosts, versions, steps."""
_MARKS = r"[!@#$%^&*+?~]"

_OF_URL = (
    r"(?P<before>(?i:token|secret|passw(?:or)?d|(?:api|access|secret|private|auth)[_-]?key|signature)(?:%22|%27)?"
    r"(?:%20|\+)?%3[AaDd](?:%20|\+)?(?:%22|%27)?)(?:[^%&\s\"'<>]|%(?!2[2267C])[0-9A-Fa-f]{2}){3,4096}"
)
_SESSION = (
    r"(?P<before>(?<![\w.-])(?i:(?:php)?sess(?:ion)?_?-?id|jsessionid|asp\.net_sessionid|connect\.sid"
    r"|(?:x[_-])?csrf_?-?token)[\"']?[ \t]?[=:][ \t]?[\"']?)(?=[^\s\"';,]{0,60}[0-9])(?=[^\s\"';,]{0,60}[A-Za-z])"
    r"(?![0-9a-f-]{32,36}\b)[A-Za-z0-9%._~+/-]{16,512}"
)
"""Cookies that stand for a person; one that is a UUID is an id of a run."""


def without_spoken(text: str, small: str) -> str:
    """The text without them.

    small: the same in small letters.
    """
    if "pass" in small or "pw" in small or "contrase" in small:
        text = _without(text, _OF_PERSON, _is_password)
    if any(word in small for word in ("token", "secret", " key", "_key", "-key", "otp", "code")):
        text = _without(text, _OF_SERVICE, _is_told)
    if "%3" in small:
        text = compiled(_OF_URL).sub(rf"\g<before>{REDACTED}", text)
    if "sess" in small or "csrf" in small or "connect.sid" in small:
        text = compiled(_SESSION).sub(rf"\g<before>{REDACTED}", text)
    return text


def _without(text: str, names: str, is_secret: Callable[[str, re.Match[str]], bool]) -> str:
    """The text without the words behind these names of which `is_secret(word, match)` is true."""
    small = text.lower()
    if len(small) != len(text):  # a letter that has no small one of its own length
        small, names = text, f"(?i:{names})"
    parts: list[str] = []
    done = 0
    for name in compiled(names).finditer(small):
        before = text[name.start() - 1 : name.start()]
        if name.start() < done or (before.isalnum() or before in {".", "$", "/"} if before else False):
            continue
        match = compiled(_IS).match(text, name.end())
        if match is not None and is_secret(word := match["word"].rstrip(".:"), match):
            parts += [text[done : match.start("word")], REDACTED]
            done = match.start("word") + len(word)
    return "".join([*parts, text[done:]]) if parts else text


def _is_password(word: str, match: re.Match[str]) -> bool:
    """Whether no sentence has this word behind "password"."""
    if word in REDACTED or compiled(_WORDS).fullmatch(word) or compiled(_A_PLACE).match(word):
        return False
    if not word.isalpha() and not compiled(_NAMES).fullmatch(word):
        return True
    is_end = compiled(_BEHIND, re.MULTILINE).match(match.string, match.end()) is not None
    return is_end and (match["sign"] is not None or any(map(str.isdecimal, word)))


def _is_told(word: str, match: re.Match[str]) -> bool:
    """Whether a word behind "token" or "key" looks like no name of a thing."""
    if len(word) < 6 or "=" in word[:-2] or "::" in word or "(" in match.string[match.end() : match.end() + 1]:
        return False
    if compiled(_A_PLACE).match(word) or compiled(_NAMES).fullmatch(word):
        return False
    has_mark, has_digit = compiled(_MARKS).search(word) is not None, any(map(str.isdecimal, word))
    is_odd = (has_digit or has_mark) and any(map(str.isalpha, word))
    return is_odd and len(compiled(KINDS).findall(word)) > (1 if has_mark else 2)
