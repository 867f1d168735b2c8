"""Secrets as people write them to each other: `pwd: x`, `password hunter2`, `token x`; and within encoded URLs."""

import re
from collections.abc import Callable

from allready.names import REDACTED
from allready.patterns import compiled, has_one
from allready.redaction.drawn import KINDS
from allready.redaction.places import OF_SENTENCES

_OF_PERSON = r"passw(?:or)?d|passphrase|passcode|pwd|pw|passwort|contraseña|mot de passe"
_OF_SERVICE = (
    r"(?:api|access|secret|private|license|encryption|master|cluster|deploy|munge|join|webhook|bot|admin|root|recovery)"
    r"[ _-](?:key|code|token)|token|secret|otp|pin code"
)
_IS = (
    r"(?: for [^\s:]{1,60}| \([^()\n]{1,40}\))?"
    r"(?:(?P<sign>[\"'*`]{0,3}[ \t]{0,3}(?:[:=]|->)\*{0,2}[ \t]{0,3}| is:? | was:? | set to "
    r"| changed to )|[ \t]{1,2})[\"'`]?(?![-\d.,:%]{1,20}(?:[\s|]|$))(?P<word>[^\s\"'`<>(){}\[\],;，。]{3,512})"
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
    r"(?m)(?=[\"'`]?(?:[ \t]*(?:\r?$|[,;)\]}\n]|[\w-]{1,30}[ \t]?[:=]))"
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


_STATED = (
    r"(?m)(?:"
    # credentials: bob/x; user bob and password x; password "x"
    r"(?P<pair>\b(?i:credentials?|creds)[ \t]{0,3}[:=][ \t]{0,3})[\w.@-]{2,60}[/:](?!/)[^\s\"'/]{4,100}(?=[ \t]*\r?$)"
    r"|(?P<user>\b(?i:user(?:name)?|login|account)[ :=]{1,3}\S{1,60}(?i: and| with|,)(?i: the)? "
    r"(?i:passw(?:or)?d|pwd|pass) )"
    r"(?!(?i:is|was|has|not|for|of|in|to|do|does|did|are|must|file|hash)\b)[^\s.,;:]{4,100}(?=[.,;]?[ \t]*\r?$)"
    rf"|(?P<quoted>\b(?i:passw(?:or)?d|passphrase|passcode) [\"'`])(?!{OF_SENTENCES}[\"'`])[^\"'`\s]{{4,100}}(?=[\"'`])"
    # the password is 12345678
    r"|(?P<digits>\b(?i:passw(?:or)?d|passphrase|passcode)[*`]{0,2}(?i: for [^\s:]{1,60})?"
    r"(?: is:?| was:?|:)[*`]{0,2} `?)[0-9]{6,12}(?=[.,;`]?[ \t]*\r?$)"
    # wandb key: 0123abcd; PIN is 4711
    r"|(?P<service>\b(?i:wandb|w&b|hf|hugging ?face|openai|comet|neptune|aws|azure|gcp|github|gitlab|slack|ngc|kaggle"
    r"|anthropic|cohere|clearml)(?i:'s)?(?i: api)?(?i: (?:key|token|secret))(?i: is)?[:=]?[ \t]{1,3}[\"']?)"
    r"(?=[a-z0-9._-]{0,60}[0-9])(?=[a-z0-9._-]{0,60}[a-zA-Z])[A-Za-z0-9._-]{6,200}(?=[\"']?[ \t]*\r?$)"
    r"|(?P<pin>\bPIN(?: code)?(?: is|:) )[0-9]{4,8}(?![\w.])"
    # the token is x, at the end of a line; password: three words or more that are no sentence
    r"|(?P<said>\b(?i:the|my|your|our|his|her) (?:[a-z]{2,12} ){0,2}?"
    r"(?i:token|secret|passphrase|(?:api|access|secret) key) (?i:is|was):? )(?P<word>[A-Za-z]{6,40})(?=[.!]?[ \t]*\r?$)"
    r"|(?P<phrase>(?:(?:^|(?<=[\]>|-] )|(?<=\]: )|(?<=[0-9A-Z] ))(?i:passw(?:or)?d|passphrase)[ \t]{0,2}(?::|=|is:)"
    r"|\b(?i:passphrase) is:?)[ \t]{1,3})"
    r"(?P<words>[a-z]{3,12}(?:[ -][a-z]{3,12}){2,7})(?=[ \t]*\r?$))"
)
_STATEMENTS = ("pair", "user", "quoted", "digits", "service", "pin", "said", "phrase")
_PREDICATES = (
    r"(?i:\w+(?:ed|ing|en|ly|able|ible|less|ive|al|ous|ent|ant|ary|ory|ic|ful|case|ness)|unique|secure|private|public"
    r"|stale|random|string|integer|number|object|numeric|longer|shorter|larger|smaller|greater|older|newer|unsafe|ready"
    r"|enough|either|itself|yours|theirs|inside|outside|whitespace|newline|opaque|bearer|nothing|something|unknown|correct"
    r"|constant|always|better|double|single|simple|similar|garbage|sensitive|anonymous|shown|drawn|thrown|subword|character|letter|prefix|suffix|fixed|within|between|across)"
)
"""What a token is in a sentence, beside the words that follow "password"."""


def without_spoken(text: str, small: str) -> str:
    """The text without them.

    small: the same in small letters.
    """
    if "pass" in small or "pw" in small or "contrase" in small:
        text = _without(text, _OF_PERSON, _is_password)
    if has_one(("token", "secret", " key", "_key", "-key", "otp", "code"), small):
        text = _without(text, _OF_SERVICE, _is_secret)
    if has_one(("pass", "credential", "creds", " key", "token", "secret", "pin is", "pin:", "pin code"), small):
        text = compiled(_STATED).sub(_without_stated, text)
    if "%3" in small:
        text = compiled(_OF_URL).sub(rf"\g<before>{REDACTED}", text)
    if "sess" in small or "csrf" in small or "connect.sid" in small:
        text = compiled(_SESSION).sub(rf"\g<before>{REDACTED}", text)
    return text


def _without_stated(match: re.Match[str]) -> str:
    """What was reported, replaced; a sentence as it is."""
    before = next(part for name in _STATEMENTS if (part := match[name]) is not None)
    word, words = match["word"], match["words"]
    if word and (compiled(_WORDS).fullmatch(word) or compiled(_PREDICATES).fullmatch(word)):
        return match[0]
    if words and any(compiled(OF_SENTENCES).fullmatch(one) for one in re.split("[ -]", words)):
        return match[0]
    return match[0] if REDACTED in match[0] else before + REDACTED


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
    is_end = compiled(_BEHIND).match(match.string, match.end()) is not None
    return is_end and (match["sign"] is not None or any(map(str.isdecimal, word)))


def _is_secret(word: str, match: re.Match[str]) -> bool:
    """Whether a word behind "token" or "key" looks like no name of a thing."""
    return match.string[match.end() : match.end() + 1] != "(" and is_no_name(word)


def is_no_name(word: str) -> bool:
    """Whether letters, digits and marks follow each other as in no name, number, place or call."""
    if len(word) < 6 or "=" in word[:-2] or "::" in word:
        return False
    if compiled(_A_PLACE).match(word) or compiled(_NAMES).fullmatch(word):
        return False
    has_mark, has_digit = compiled(_MARKS).search(word) is not None, any(map(str.isdecimal, word))
    is_odd = (has_digit or has_mark) and any(map(str.isalpha, word))
    return is_odd and len(compiled(KINDS).findall(word)) > (1 if has_mark else 2)
