"""Secrets: tokens, keys and passwords are replaced before anything is shown, written or sent.

Names decide first (`HF_TOKEN=...`, `--api-key ...`, `"password": "..."`), then the shapes that well-known tokens have.
`masked` is for what a run wrote; there long hexadecimal words stay: they are communicators, containers, symbols.
`redact` is for one variable's value, and stricter: there such a word is a key.
"""

import functools
import json
import operator
import re
from typing import Any, NamedTuple, TypeVar

import msgspec.structs

from allready.model import Difference
from allready.names import REDACTED as REDACTED
from allready.patterns import compiled, has_one
from allready.redaction.arguments import HINTS as ARGUMENT_HINTS
from allready.redaction.arguments import without_arguments
from allready.redaction.drawn import is_random
from allready.redaction.pairs import without_pairs
from allready.redaction.places import LOOK_BACK, NAME_HINTS, without_placed
from allready.redaction.prefixed import without_prefixed
from allready.redaction.spoken import without_spoken
from allready.redaction.tables import HINTS as COLUMN_HINTS
from allready.redaction.tables import without_columns

T = TypeVar("T")

_WORD = r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)S?"
_KEY = r"(?:API|ACCESS|SECRET|PRIVATE|ACCOUNT|ENCRYPTION|SIGNING|SSH|AUTH)"

# NCCL_IB_PKEY is the number of a partition; PWD is a folder.
_ENV_NAME = (
    rf"(?:(?!NOPASSW)[A-Z0-9_]*{_WORD}|[A-Z0-9_]*{_KEY}_?KEYS?(?:_ID)?"
    r"|[A-Z0-9_]+_(?:KEYS?|PASS|PWD|PW|PAT|AUTH|COOKIE|JWT|BEARER))(?:_?[0-9]{1,2})?"
)
_SECRET_ENV = _ENV_NAME

_VALUE = r"""(?:(?<![A-Za-z0-9_])[bru]{1,2}(?:"[^"\n]{0,4096}"|'[^'\n]{0,4096}')"""
_VALUE += r"""|\"{3}[^\n]{0,4096}?\"{3}|'{3}[^\n]{0,4096}?'{3}"""
_VALUE += r"""|\$'(?:[^'\\\n]|\\.){0,4096}'|(?:"(?:[^"\\\n]|\\[^\n]){0,4096}"?|'(?:[^'\\\n]|\\[^\n]){0,4096}'?)"""
_VALUE += r"""(?:(?:[ \t]{0,4}\+[ \t]{0,4})?(?:"[^"\n]{0,4096}"|'[^'\n]{0,4096}')){0,20}"""
_VALUE += r"""|[^\s"',;&)}\]]+(?:[,;&)}\]]{1,4}(?![\w.-]{0,60}["']?[ \t]?[=:])[^\s"',;&)}\]]+){0,20})"""
"""Quoted ones may be put together of several.
A bare one ends at a comma, `;`, `&` or bracket with nothing, or with another name, behind it."""
_LITERAL = r'"(?:[^"\\\n]|\\[^\n]){1,1000000}"'
_HARMLESS = (
    r"(?i)(?:[-+]?[\d.,_]{1,12}|none|null|true|false|yes|no|on|off|n/a|\(redacted\)?|[<\[*].*|not|unset|missing|"
    r"empty|undefined|)"
)
_OF_PERSON = r"(?i:passw(?:or)?d|passphrase|[._-](?:pass|pwd))$"
"""Names of what may also be a number; a token of digits is a count of them."""
_A_FILE = r"~?/[\w./-]{1,512}\.json"
_A_CALL = r"[A-Za-z_][A-Za-z_.]*[(\[]"
"""What code has behind a name: `token = tokenizer.encode(text)`, `password: Optional[str]`."""
_REFERENCE = (
    r"\$(?:\{(?:oc\.env:|env[:.])?[A-Za-z_]\w{0,100}\}|[A-Z][A-Z0-9]{0,40}(?:_[A-Z0-9]{1,40}){1,8}"
    r"|\((?:cat[ \t]{1,4}|<[ \t]{0,4})[\w./~$-]{1,400}\))(?=[\"'\s,;)\]}]|\Z)"
)
"""Says where the secret comes from, and is none: `${HF_TOKEN}`, `$(cat /run/secrets/hf)`; a default has one."""
_NOT_NAMES = (
    r"(?i)(?:pad|eos|bos|unk|sep|cls|mask|image|special|max|min|num|new|per|next|first|last|stop|end|start)[_-]?tokens?"
)
_NAMED = (
    # An environment variable: NAME=value, NAME: value, "NAME": "value", NAME set by environment to value
    rf"(?<![A-Za-z0-9_])(?P<env>{_ENV_NAME})"
    r"(?P<env_is>[\"']?(?:[ \t]?:?=>?[ \t]?|:[ \t]?&?[\w.\[\]]{1,40}[ \t]?=(?=[ \t]?[\"'])[ \t]?|:[ \t]{0,60})"
    r"(?:[!&][\w!:/.-]{1,40}[ \t]+){0,2}|\s(?:set by (?:environment|env) to|set to)\s)"
    rf"(?P<env_value>{_VALUE})"
    # An option of a command: --hf-token value, --api_key=value
    r"|(?<![\w-])(?P<flag>--?(?:[A-Za-z0-9]+[_.-]){0,8}"
    r"(?i:token|secret|password|passwd|passphrase|(?:db|ssh|smtp|redis|admin|root|store|key|require)[_-]?pass"
    r"|(?:api|access|secret|private|auth)[_-]?key)(?:[_-]?[0-9]{1,2})?)"
    rf"(?P<flag_is>=|\s+|['\"],\s*(?=['\"]))(?P<flag_value>(?!-){_VALUE})"
    # A name in code, JSON, YAML or a URL: token="value", 'api_key': 'value', ?access_token=value
    r"|(?<![A-Za-z0-9])(?P<name>(?:[A-Za-z0-9]+[_.-]){0,8}"
    r"(?:(?i:token|secret|(?:vnc|db|user|root|ssh|ldap|sudo|smtp|admin)?passw(?:or)?d|passphrase|x-amz-(?:signature|credential|security-token)"
    r"|(?:api|(?:pre)?shared(?:[ _-]?access)?|access|secret|private|auth|account|encryption|signing"
    r"|subscription|master|license)"
    r"[ _.-]?key(?:_id)?"
    r"|(?:ssh|become|db|smtp|ldap|bind|storage|comp|admin|root|sudo|proxy|ipmi|bmc|redis|keystore)[._-]?pass)"
    r"|[A-Za-z]{0,30}(?:Storage|Comp|Db|User|Admin|Root|Bind)Pass"
    r"|(?:[a-z]|(?<=[\"'])[A-Z])[A-Za-z0-9]{0,40}?"
    r"(?:Token|Secret|Password|Passwd|Passphrase|(?:Api|Access|Secret|Private|Auth|Encryption|Signing|Shared)Key))[_-]?[0-9]{0,2})"
    r"(?P<name_is>[\"']?[ \t]?"
    r"(?::[ \t]?&?[\w.\[\]]{1,40}[ \t]?=(?=[ \t]?[\"'])|:?=>?|:)[ \t]{0,4}(?:[!&][\w!:/.-]{0,40}[ \t]+){0,2})"
    rf"(?P<name_value>{_VALUE})"
)
_NAMED_HINTS = (
    "token", "secret", "passw", "passphrase", "credential", "key", "_pw", "_pat", "_pass", "-pass", ".pass",
    "pass=", "pass =", "pass:", "pass ",
    'pass"', "pass'", "_pwd", "_auth", "_cookie", "_jwt",
    "bearer", "signature",
)  # fmt: skip
"""In small letters; a text without any has nothing that `_NAMED` finds.  A search for each is ten times as fast."""
_NO_NAMES = ("tokeniz", "_path")
"""Words of every second log that have a hint in them and are the name of no secret."""


class _Family(NamedTuple):
    """Shapes, and words in small letters of which a text with one of the shapes has at least one."""

    hints: tuple[str, ...]
    shapes: str


_BEGIN = r"(?<![A-Za-z0-9])"
_WRITTEN = r"%[0-9A-Fa-f]{2}|\\[nrt]|\[[0-9;]{1,9}m"
"""What is written for another character: `%22`, `\\n`, a colour of a terminal."""
_BEHIND_WRITTEN = rf"(?:{_BEGIN}|(?<=%[0-9A-Fa-f]{{2}})|(?<=\\[nrt])|(?<=\[[0-9]m)|(?<=[0-9]{{2}}m))"


def _family(hints: str, *shapes: str) -> _Family:
    """Around a shape `\\b` lets an underscore stand as well: people put tokens into names."""
    all_shapes = "".join(f"|{shape}" for shape in shapes).replace(r"|\b", f"|{_BEGIN}")[1:]
    for end in "}])?":
        all_shapes = all_shapes.replace(rf"{end}\b", f"{end}(?![A-Za-z0-9])")
    return _Family(tuple(hints.split("|")), f"(?s){all_shapes}")


_FAMILIES = (
    _family("oracle:thin:", r"(?<=oracle:thin:)[^\s/@]{1,128}/[^\s@]{1,256}(?=@)"),
    _family("://", r"(?P<url>(?<=://)(?:[^/\s\"'<>]{1,512}|[^/\s@\"'<>:]{0,128}:(?!\d{1,5}/)[^\s\"'<>@]{1,256})(?=@))"),
    _family(
        "key",
        r"----(?:-| )BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?:-| )----"
        r"(?:.{0,20000}?----(?:-| )END[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?:-| )----|.*)",
        r"\bAGE-SECRET-KEY-1[A-Z0-9]{20,}",
        r"(?<![A-Za-z0-9_.])(?P<key>key\s?=\s?[\"'])[A-Za-z0-9_+/-]{24,}=*",
        r"\bkey-[a-f0-9]{32}\b",
    ),
    _family(  # by the file or the command in which it stands
        "\"auth\"|'auth'|identitytoken|registrytoken|key-data|psk|<pass|<secret|<token|<api|cookie:|login"
        "|\"]|']|\\\"|\\'|mysql|:5432:",
        r"(?P<key>[\"']auth[\"']\s?:\s?[\"']|(?i:identitytoken|registrytoken)[\"']\s?:\s?[\"']"
        r"|client-key-data[\"']?\s?:\s?[\"']?|\bpsk\s?=\s?[\"']?|<(?i:password|passwd|secret|token|api-?key)>"
        r"|(?i:\bcookie: )|\bdefault\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9}"
        r"|[\"'][A-Z0-9_]{0,60}(?:TOKEN|SECRET|PASSWORD|KEY)[\"']\]\s?=\s?[\"']"
        r"|\\[\"'](?:[A-Za-z0-9]{1,20}[_-]){0,3}(?i:password|token|secret|api_?key)\\[\"']\s?:\s?\\[\"']"
        r"|\bmysql(?:dump|admin)?\s[^\n|;&]{0,100}?\s-p|:5432:[\w*-]{1,64}:[\w*-]{1,64}:"
        r"|\b(?:docker|podman|nerdctl|buildah|skopeo|registry)\s{1,4}login\s(?:[^\n|;&]{0,200}?\s)?-p[ =]?)"
        r"(?!\(redacted\))(?:(?<=ookie: )[^\n\"']{4,}|[^\s\"'<>\\,;&)}\]]{4,})",
    ),
    _family(
        "$6$|$5$|$1$|$apr1$|$2a$|$2b$|$2y$|$y$|private-|munge:",
        r"\$(?:[156]|apr1|2[aby]|y)\$[./A-Za-z0-9$=,]{20,}",
        r"(?<=Private-Lines: )[0-9]{1,4}\s.{0,20000}?(?=Private-MAC|\Z)",
        r"(?<=Private-MAC: )[0-9a-f]{40,64}\b|(?<=\bMUNGE:)[A-Za-z0-9+/]{20,}={0,2}(?=:)",
    ),
    _family(
        "bearer |authorization: |pwd=|wandb| -u |machine",
        r"(?i:(?<=bearer )|(?<=authorization: basic ))[A-Za-z0-9._~+/=-]{8,}",
        r"(?i:(?<=authorization: token )|(?<=authorization: apikey ))\S{8,}",
        r"(?i:(?<=;pwd=)|(?<=; pwd=))[^;\s\"']+",
        r"(?i:(?<=wandb login )|(?<=wandb login --relogin ))[A-Za-z0-9_-]{20,}",
        r"(?P<key>(?i:\bwandb\b)[^\n]{0,80}?(?i:\bkey)(?:(?!commit|sha|rev|hash|\brun\b)[^\n]){0,100}?[ :=])"
        r"(?:local-)?[0-9a-f]{40}\b",
        r"(?<= -u )(?P<quote>[\"']?)(?![0-9]+:[0-9]+(?:\s|$))[^\s:'\"]{1,128}:[^\s'\"]{1,512}",
        r"(?<=\bmachine\s)\S{1,255}\s{1,20}login\s{1,20}\S{1,255}\s{1,20}password\s{1,20}\S{1,512}",
    ),
    _family(  # Amazon's secret key is known by the access key before it
        "akia|asia|abia|acca",
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"
        r"(?:[^A-Za-z0-9/+\n]{1,12}(?:[A-Za-z_]{1,40}[^A-Za-z0-9/+\n]{1,6})?[A-Za-z0-9/+]{40}\b)?",
    ),
    _family(
        "aiza|ya29.|gocspx-|1//0|goog1|sig=|signature=|q~|ltai",
        r"\bAIza[0-9A-Za-z_-]{30,}|\bya29\.[A-Za-z0-9_-]{20,}|\bGOCSPX-[A-Za-z0-9_-]{20,}|\b1//0[A-Za-z0-9_-]{30,}",
        r"(?i:(?<=[, ]signature=))[a-f0-9]{40,}",
        r"(?i:(?<=[?&;]sig=)|(?<=[?&]signature=)|(?<=x-goog-signature=))[A-Za-z0-9%+/=_-]{10,}",
        r"(?<![\w~.-])[\w~.-]{3}[0-9]Q~[\w~.-]{31,34}|\bLTAI[A-Za-z0-9]{12,20}\b|\bGOOG1[A-Z0-9]{20,70}\b",
    ),
    _family(
        "_v1_|akcp|pat|hrku-|fm1_|fm2_|sbp_|pscale_|.atlasv1.|pul-|pmak-|bkua_|lsv2_|gr1348941|altak-|a3-|local-",
        r"\bPMAK-[a-f0-9]{24}-[a-f0-9]{34}\b|\bbkua_[a-f0-9]{40}\b|\blsv2_[a-z]{2}_[a-f0-9]{32}_[a-f0-9]{10}\b",
        r"\blocal-[a-f0-9]{40}\b|\bGR1348941[\w-]{20}\b",
        r"\bALTAK-[A-Za-z0-9]{16,}(?:/[a-f0-9]{32,})?|\bA3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,6}-){4}[A-Z0-9]{5}\b",
        r"\bAKCp[A-Za-z0-9]{40,100}|\bpat[A-Za-z0-9]{14}\.[a-f0-9]{64}\b",
        r"\bdo[opr]_v1_[a-f0-9]{32,}|\bwandb_v1_[A-Za-z0-9_]{16,}|\bHRKU-[A-Za-z0-9_-]{20,}",
        r"\bfm[12]_[A-Za-z0-9+/=_-]{30,}|\bsbp_[a-f0-9]{32,}|\bpscale_[a-z]{2,5}_[A-Za-z0-9_.-]{20,}",
        r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}|\bpul-[a-f0-9]{40}\b",
    ),
    _family(
        "ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|gl|pypi-|npm_|rubygems_|cio|dckr_|atbb|atatt3",
        r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}",
        r"\bgl(?:pat|dt|rtr?|ft|cbt|ptt|soat|agent|imt|ffct|oas|wt)-[A-Za-z0-9_.-]{16,}",
        r"\bglsa_[A-Za-z0-9]{20,}_[a-f0-9]{8}|\bglc_[A-Za-z0-9+/=]{20,}",
        r"\bpypi-[A-Za-z0-9_-]{24,}|\bnpm_[A-Za-z0-9]{30,}|\brubygems_[a-f0-9]{32,}|\bcio[A-Za-z0-9]{32}\b",
        r"\bdckr_[a-z]{3}_[A-Za-z0-9_-]{20,}|\bATBB[A-Za-z0-9]{20,}|\bATATT3[A-Za-z0-9_=-]{20,}",
    ),
    _family(
        "hf_|api_org_|nvapi-|sk-|gsk_|xai-|pplx-|r8_|kgat_|dapi|eyj",
        r"\b(?:hf|api_org)_[A-Za-z0-9]{24,}|\bnvapi-[A-Za-z0-9_-]{20,}|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_.-]{10,}",
        r"\bsk-(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{20,}|\bgsk_[A-Za-z0-9]{30,}|\bxai-[A-Za-z0-9]{30,}",
        r"\bpplx-[A-Za-z0-9]{30,}|\br8_[A-Za-z0-9]{30,}|\bKGAT_[A-Za-z0-9]{20,}|\bdapi[a-f0-9]{32}(?:-[0-9])?\b",
    ),
    _family(
        "xox|xapp-|hooks.slack.com|/api/webhooks/|webhook.office.com|k_live_|k_test_|whsec_|sg.|hvs.|hvb.|hvr.|nrak-|sntry"
        "|lin_api_|ntn_|sk|:aa|dp.|shp|sq0",
        r"\bxox[abeprs]-[A-Za-z0-9-]{12,}|\bxoxe\.[A-Za-z0-9.-]{12,}|\bxapp-[0-9]-[A-Za-z0-9-]{20,}",
        r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/\S+|(?<=/api/webhooks/)[0-9]+/[\w-]+",
        r"(?<=webhook\.office\.com/)\S+",
        r"\b[rsp]k_(?:live|test)_[A-Za-z0-9]{10,}|\bwhsec_[A-Za-z0-9+/=]{20,}|\bSG\.[\w-]{16,}\.[\w-]{16,}",
        r"\bhv[sbr]\.[A-Za-z0-9_-]{20,}|\bNRAK-[A-Z0-9]{20,}|\bsntry[su]_[A-Za-z0-9+/=_-]{20,}",
        r"\blin_api_[A-Za-z0-9]{20,}|\bntn_[A-Za-z0-9]{30,}|\bSK[a-f0-9]{32}\b|(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}",
        r"\bdp\.[a-z]{2,5}\.[A-Za-z0-9]{30,}|\bshp[a-z]{2}_[a-fA-F0-9]{32}\b|\bsq0[a-z]{3}-[A-Za-z0-9_-]{20,}",
    ),
)
"""Shapes of tokens that are known without a name before them, by where they are used."""


_OF_BASIC = r"[A-Za-z][\w.@+-]{1,63}:(?=[^\n]{0,200}[A-Za-z])[!-~]{6,200}"
_CONTINUED = (
    rf"(?<![A-Za-z0-9_])(?P<name>{_ENV_NAME}[ \t]?=[ \t]?)[^\s\\\"'$]{{1,4096}}(?:\\\r?\n[^\s\\\"']{{1,4096}}){{1,100}}"
)
"""A value that a backslash leads on to the next line."""


# Whole words between underscores: NCCL_IB_PKEY is the number of a partition, not a key.
_STRICT_NAME = (
    r"(?i)(?:^|_)(?:[A-Z0-9]*(?:TOKEN|SECRET|PASSWORD|PASSWD|APIKEY|ACCESSKEY|CREDENTIALS?)S?|KEY|KEYS|PASS|PWD|AUTH"
    r"|COOKIE|PRIVATE|SIGNATURE|BEARER|JWT)(?:_|$)"
)
_STRICT_VALUE = (
    r"(?is)(?P<url>(?<=://)[^/\s@]+(?=@))"
    r"|(?:(?<=password=)|(?<=passwd=)|(?<=secret=)|(?<=token=)|(?<=api_key=)|(?<=apikey=))[^\s&;,]+"
    r"|(?<=bearer )\S+"
    r"|-----BEGIN[^-]*PRIVATE KEY.*"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"
    r"|\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|nvapi-|wandb_v1_|pypi-)[A-Za-z0-9_\-]{12,}"
    r"|\bAIza[0-9A-Za-z_\-]{30,}"
    r"|\beyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-.]+"
    r"|(?<![A-Za-z0-9])[0-9a-f]{32,}(?![A-Za-z0-9])"
)
# Base64 as tokens have it.  "/" is left out, or every long path would match.
_LONG_WORD = r"[A-Za-z0-9+_\-]{40,}=*"
_GPU_UUID = r"(?:MIG-)?(?:GPU|MIG)-[0-9a-f-]{36}"


def redact(name: str, value: str) -> str:
    """The value of a variable with every likely secret replaced by "(redacted)"; all of it if the name says so."""
    if compiled(_STRICT_NAME).search(name) or is_secret_name(name):
        return REDACTED if value else value
    return compiled(_LONG_WORD).sub(_if_random, compiled(_STRICT_VALUE).sub(REDACTED, masked(value)))


def _if_random(match: re.Match[str]) -> str:
    word = match[0]
    if compiled(_GPU_UUID).fullmatch(word):
        return word
    mixed = all(len(re.findall(kind, word)) > 2 for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return REDACTED if mixed else word


@functools.lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether an environment variable of this name holds a secret."""
    return bool(compiled(_SECRET_ENV).fullmatch(name))


def masked_value(name: str, value: str) -> str:
    """The value of an environment variable, "(redacted)" if its name says that it is a secret."""
    return REDACTED if value and is_secret_name(name) else masked(value)


@functools.lru_cache(maxsize=4096)
def masked(text: str) -> str:
    """The text with what looks like a secret replaced by "(redacted)"."""
    return _masked_text(without_prefixed(text, _masked_text))


def _masked_text(text: str) -> str:
    if "\\" in text and '"' in text:
        text = compiled(_LITERAL).sub(_without_in_literal, text)
    if "\\\n" in text or "\\\r\n" in text:
        text = compiled(_CONTINUED).sub(lambda m: m["name"] + "\\\n".join([REDACTED] * (m[0].count("\n") + 1)), text)
    small = text.lower()
    for word in _NO_NAMES:
        small = small.replace(word, "")
    is_plain = text.isascii()  # else a letter that is no ASCII may stand for one that is
    if not is_plain or has_one(_NAMED_HINTS, small):
        text = compiled(_NAMED).sub(_without_value, text)
    is_written = compiled(rf"(?:{_WRITTEN})[A-Za-z0-9]").search(text) is not None
    for family in _FAMILIES:
        if not is_plain or has_one(family.hints, small):
            shapes = family.shapes.replace(_BEGIN, _BEHIND_WRITTEN) if is_written else family.shapes
            text = compiled(shapes).sub(_without_shape, text)
    if has_one(ARGUMENT_HINTS, text):
        text = without_arguments(text, _masked_text)
    text = without_placed(text, small, _holds_secret)
    text = without_spoken(text, small)
    if not is_plain or has_one(NAME_HINTS, small):
        text = without_pairs(text)
    if "\n" in text and has_one(COLUMN_HINTS, small):
        text = without_columns(text, text.lower())
    return text


def _holds_secret(encoded: str) -> bool:
    """Whether what stands somewhere in base64 is a secret: it has one, or is a name and a password."""
    return masked(encoded) != encoded or compiled(_OF_BASIC).fullmatch(encoded) is not None


def _without_in_literal(match: re.Match[str]) -> str:
    """A string of JSON: what it stands for is what has a secret, lines and quotes and all."""
    if "\\" not in match[0]:
        return match[0]
    try:
        said = json.loads(match[0])
    except ValueError:
        return match[0]
    clean = masked(said)
    return match[0] if clean == said else json.dumps(clean)


def masked_all(value: T) -> T:
    """The same for every text within Structs, mappings, tuples and lists.

    What holds no secret stays the same object.  In a mapping, and in a `Difference`, a variable's name decides about
    its value.
    """
    return _masked(value)  # type: ignore[no-any-return]


_BARE = frozenset({int, float, bool})


@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    """The fields of a Struct; none of another class."""
    names: tuple[str, ...] = getattr(cls, "__struct_fields__", ())
    return names


def _masked(value: Any) -> Any:
    kind: type = type(value)
    if kind is str:
        new_text = masked(value)
        return value if new_text == value else new_text  # what is remembered may be another, equal text
    if value is None or kind in _BARE:
        return value
    if isinstance(value, (tuple, list)):
        new = [_masked(v) for v in value]
        if all(map(operator.is_, new, value)):
            return value
        return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
    if isinstance(value, dict):
        found = {k: new for k, v in value.items() if type(v) not in _BARE and (new := _masked_if_named(k, v)) is not v}
        return {**value, **found} if found else value
    if names := _names(kind):
        changed: dict[str, Any] = {}
        for name in names:
            old = getattr(value, name)
            if type(old) is str:  # here as well: most of what a report has are texts in Structs
                if (text := masked(old)) != old:
                    changed[name] = text
            elif old and type(old) not in _BARE and (inner := _masked(old)) is not old:
                changed[name] = inner
        if isinstance(value, Difference) and is_secret_name(value.what):
            changed |= {"good": REDACTED, "bad": REDACTED}
        return msgspec.structs.replace(value, **changed) if changed else value
    return value


def _masked_if_named(name: object, value: Any) -> Any:
    if type(value) is str and value and is_secret_name(str(name)):
        return REDACTED
    return _masked(value)


def _without_value(match: re.Match[str]) -> str:
    for kind in ("env", "flag", "name"):
        name = match[kind]
        if name is None:
            continue
        value: str = match[f"{kind}_value"]
        quote = value[0] if value[0] in "\"'" else ""
        bare = value.strip(quote) if quote else value
        is_code = len(bare) > 3 and bare.isdecimal() and compiled(_OF_PERSON).search(name) is not None
        if (compiled(_HARMLESS).fullmatch(bare) and not is_code) or compiled(_NOT_NAMES).search(name):
            return match[0]
        if compiled(_REFERENCE).match(match.string, match.start(f"{kind}_value") + len(quote)):
            return match[0]
        if kind == "flag" and _is_metavar(name, bare):
            return match[0]
        if kind == "env" and name.endswith("CREDENTIALS") and compiled(_A_FILE).fullmatch(bare):
            return match[0]
        if kind == "name" and not quote and compiled(_A_CALL).match(bare):
            return match[0]
        # A sentence is not a value: "token: unexpected end", "secret: cannot read".
        is_word = len(bare) < 6 or (bare.isalpha() and not is_random(bare, with_digits=False))
        if (
            kind == "name"
            and ":" in match["name_is"]
            and not quote
            and is_word
            and (bare[:1] in "|>&*!" or not _is_line(match))
        ):
            return match[0]
        end = quote if quote and len(value) > 1 and value.endswith(quote) else ""
        return f"{name}{match[f'{kind}_is']}{quote}{REDACTED}{end}"
    return match[0]


def _is_metavar(flag: str, value: str) -> bool:
    """Whether a usage message has this behind the option: `--hub-token HUB_TOKEN`."""
    return value.isupper() and flag.lstrip("-").upper().replace("-", "_").endswith(value)


def _is_line(match: re.Match[str]) -> bool:
    """Whether name and value are a line, or an entry of a mapping, of their own, but for what a log puts in front: no
    words of a sentence."""
    text = match.string
    before = text[max(0, match.start() - LOOK_BACK) : match.start()].rpartition("\n")[2].rstrip(" \t-")
    behind = text[match.end() : match.end() + LOOK_BACK].partition("\n")[0].strip()
    if before[-1:] in {"{", ","} and behind[:1] in {"}", ","}:
        return True
    return not before[-1:].islower() and (not behind or behind.startswith("#"))


def _without_shape(match: re.Match[str]) -> str:
    return (match.groupdict().get("key") or "") + REDACTED
