"""Secrets beside their names in whatever way a language or a format puts the two together: `cfg['api_key'] = 'x'`,
`[TOKEN] => x`, `set("secret", "x")`, `<token>x</token>`, `| TOKEN | x |`.

The signs are many and mean other things as well; so only a value that looks like no name of a thing is taken.
"""

import re

from allready.names import REDACTED
from allready.patterns import compiled
from allready.redaction.drawn import KINDS
from allready.redaction.spoken import is_no_name

_CALLED = (
    r"(?:(?i:token(?!s)|secret|passw(?:or)?d|passphrase|credential|(?:api|access|secret|private|auth|account|encryption|signing"
    r"|master|shared)[_.-]?key|(?:ssh|become|db|smtp|ldap|bind|storage|admin|root|user|proxy|redis|sql)[._-]?pass)s?"
    r"(?:[_-]?(?i:id))?|(?<=[A-Z0-9]_)(?:KEY|PASS|PWD|PW|PAT|AUTH|COOKIE|JWT|BEARER))(?![A-Za-z0-9_])"
)
_PAIR = (
    _CALLED + r"(?P<gap>(?:(?:\[\w{0,20}\])?[^\w\n]{1,14}|[^\w\n]{0,6}%3[Dd]|[^\w\n]{0,4} (?:to|is|was) [\"'`]?)"
    r"(?:!{1,2}\w{1,10} |&\w{1,10} |&?[A-Za-z]\w{0,20}\s?=\s?[\"'])?)(?P<value>[^\s\"'`\\<>(),;|%\u0080-\uffff]{8,512})"
)
_STRONG = r"[=|│\t]|->|<-|[^\w\s]>|%|[:,(].*[\"'`]"
"""What stands between a name and its value and nowhere else; behind the rest only a drawn word is a value."""
_DRAWN_KINDS = 6


def without_pairs(text: str) -> str:
    """The text without them."""
    return compiled(_PAIR).sub(_without_value, text)


def _without_value(match: re.Match[str]) -> str:
    gap, value = match["gap"], match["value"].rstrip(".:")
    is_element = gap.startswith(">")
    if is_element and not match.string.startswith("</", match.end()):
        return match[0]
    is_strong = is_element or compiled(_STRONG).search(gap) is not None
    if is_no_name(value) and (is_strong or len(compiled(KINDS).findall(value)) >= _DRAWN_KINDS):
        return match[0][: -len(match["value"])] + REDACTED
    return match[0]
