"""Secrets beside their names in whatever way a language or a format puts the two together: `cfg['api_key'] = 'x'`,
`[TOKEN] => x`, `set("secret", "x")`, `<token>x</token>`, `| TOKEN | x |`.

The signs are many and mean other things as well; so only a value that looks like no name of a thing is taken.
"""

import re

from allready.patterns import compiled
from allready.redaction.places import REDACTED
from allready.redaction.spoken import is_no_name

HINTS = (
    "token",
    "secret",
    "passw",
    "passphrase",
    "credential",
    "key",
    "pass",
    "_auth",
    "_pw",
    "_pat",
    "_jwt",
    "bearer",
)
_CALLED = (
    r"(?:(?i:token(?!s)|secret|passw(?:or)?d|passphrase|credential|(?:api|access|secret|private|auth|account|encryption|signing"
    r"|master|shared)[_.-]?key|(?:ssh|become|db|smtp|ldap|bind|storage|admin|root|user|proxy|redis|sql)[._-]?pass)s?"
    r"(?:[_-]?(?i:id))?|(?<=[A-Z0-9]_)(?:KEY|PASS|PWD|PW|PAT|AUTH|COOKIE|JWT|BEARER))(?![A-Za-z0-9_])"
)
_PAIR = (
    _CALLED + r"(?P<between>\\?[\"'`]?(?:\[\w{0,20}\])?[\])}]{0,2}[ \t]{0,4}"
    r"(?P<sign>=>|->|:=|[:=,(>|│\t])[ \t]{0,4}[bfru]?(?P<quote>%22|\\?[\"'`])?)(?P<value>[^\s\"'`\\<>(),;|│%]{8,512})"
)
_BARE = frozenset({"=>", "->", ":=", "=", ">", "|", "│", "\t"})
"""Signs behind which a value stands without quotes as well."""


def without_pairs(text: str) -> str:
    """The text without them."""
    return compiled(_PAIR).sub(_without_value, text)


def _without_value(match: re.Match[str]) -> str:
    value = match["value"]
    is_whole = match["sign"] != ">" or match.string.startswith("</", match.end())
    if (match["quote"] or match["sign"] in _BARE) and is_whole and is_no_name(value.rstrip(".:")):
        return match[0][: -len(value)] + REDACTED
    return match[0]
