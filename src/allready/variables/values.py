"""What a value is for the program that reads it, and what is wrong with it."""

import ipaddress
import re
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from allready.patterns import compiled
from allready.variables.slips import distance
from allready.variables.table import Reader, Syntax, Type, Variable, flag_types, load

_TRUE, _FALSE = {"1", "y", "yes", "t", "true"}, {"0", "n", "no", "f", "false"}
_OFF_WORDS = _FALSE | {"off", "none", "disable", "disabled", ""}
_NUMBER = r"\s*[+-]?(?:0[xX][0-9a-fA-F]+|\d+)"
_CPUS = (
    r"\d{1,5}(?:-\d{1,5}(?::\d{1,5})?)?(?:,\d{1,5}(?:-\d{1,5}(?::\d{1,5})?)?)*|(?:0x)?[0-9a-fA-F]+(?:,[0-9a-fA-F]+)*"
)
_GPU = r"(?i)-?\d{1,4}|(?:GPU|MIG)-[0-9a-fA-F/-]+|all|none|void|NoDevFiles"
_HOST = r"[A-Za-z0-9_.\-]{1,253}|\[?[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]?"


MAX_WORD = 64
"""Letters of a word that may be a slip of the pen."""
LONG_WORD = 10
"""Letters from which on two of them may be wrong."""
MAX_FORM_CHARS = 4096
"""Longer values fit no form."""
MAX_LEVELS = 3
"""Numbers up to here are levels of a switch: 0 off, 1 on, 2 by itself."""
_EMPTY_STOPS = {Syntax.WORDS, Syntax.STOI, Syntax.PYTHON, Syntax.JAX}


class ProblemKind(StrEnum):
    """What is wrong with a value."""

    READ_AS_ZERO = "read-as-zero"  # a word where a number is read
    CUT_OFF = "cut-off"  # only the leading digits count
    STOPS = "stops"  # the program ends with an error when it reads it
    WITHOUT_EFFECT = "without-effect"  # passed over; the default stays
    STILL_ON = "still-on"  # meant as off, but that it is set switches it on
    OUT_OF_RANGE = "out-of-range"
    UNKNOWN_WORD = "unknown-word"
    WRONG_CASE = "wrong-case"
    MALFORMED = "malformed"
    LITERAL_QUOTES = "literal-quotes"
    LITERAL_TILDE = "literal-tilde"


class Problem(Struct, frozen=True, kw_only=True):
    """One thing wrong with a value.

    read: what the reader makes of it; better: what to write, "" where that is not known.
    """

    kind: ProblemKind
    part: str  # the part of the value that it concerns
    read: str = ""
    better: str = ""


def check(variable: Variable, value: str) -> list[Problem]:
    """What is wrong with this value as text, whatever the machine; [] when it is right or not known."""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return [Problem(kind=ProblemKind.LITERAL_QUOTES, part=value, read=value, better=value[1:-1])]
    if not value and not (variable.syntax in _EMPTY_STOPS and variable.type in {Type.BOOL, Type.INT, Type.FLOAT}):
        return []
    if variable.type in _FORMS:
        return list(_FORMS[variable.type](value))
    return list(_CHECKS[variable.type](variable, value)) if variable.type in _CHECKS else []


def number(value: str) -> int | None:
    """What strtoll reads: leading digits, decimal or hexadecimal; None when there are none."""
    match = compiled(_NUMBER).match(value)
    if match is None:
        return None
    text = match[0].strip()
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.lstrip("+"))
    if digits[:2].lower() == "0x":
        return sign * int(digits, 16)
    return sign * int(digits[:30])


def is_on(variable: Variable, value: str) -> bool:
    """Whether this value switches the variable's feature on, as its reader understands it."""
    match variable.syntax:
        case Syntax.PRESENCE:
            return True
        case Syntax.ONE:
            return value == "1"
        case Syntax.WORDS:
            return value.lower() in _TRUE
        case Syntax.JAX:
            return value.lower() in _TRUE | {"on"}
        case Syntax.SWITCH:
            return value.lower() in {"1", "true", "yes", "on"}
        case Syntax.PARAM:
            return value.upper() in {"1", "T", "TRUE"}
        case _:
            return (number(value) or 0) != 0


def is_debug_value(variable: Variable, value: str) -> bool:
    """Whether the value is one of those that are for debugging only."""
    if "*" in variable.debug:
        return is_on(variable, value) if variable.type is Type.BOOL else value not in _OFF_WORDS
    words = {word.strip().upper() for word in value.lstrip("^").split(",")}
    return any(word.upper() in words for word in variable.debug) and not value.startswith("^")


def _bool(variable: Variable, value: str) -> Iterator[Problem]:
    word = value.strip().lower()
    better = "0" if word in _OFF_WORDS else "1"
    match variable.syntax:
        case Syntax.WORDS | Syntax.JAX:
            accepted = _TRUE | _FALSE | ({"on", "off"} if variable.syntax is Syntax.JAX else set())
            if word not in accepted or value != value.strip():
                yield Problem(kind=ProblemKind.STOPS, part=value, better=better)
        case Syntax.PARAM if word not in {"1", "t", "true", "0", "f", "false"}:
            yield Problem(kind=ProblemKind.WITHOUT_EFFECT, part=value, read=variable.default, better=better)
        case Syntax.SWITCH if word not in {"1", "true", "yes", "on", "0", "false", "no", "off"}:
            yield Problem(kind=ProblemKind.WITHOUT_EFFECT, part=value, read=variable.default, better=better)
        case Syntax.ONE if value != "1" and word not in _OFF_WORDS:
            yield Problem(kind=ProblemKind.WITHOUT_EFFECT, part=value, read="0", better="1")
        case Syntax.NUMBER if word not in _OFF_WORDS:
            yield from _number_as_switch(variable, value)
        case Syntax.PRESENCE if word in _OFF_WORDS:
            yield Problem(kind=ProblemKind.STILL_ON, part=value, read="1")


def _number_as_switch(variable: Variable, value: str) -> Iterator[Problem]:
    """1 and 0; where there is no default, -1 and -2 stand for it."""
    found = number(value)
    if found is None:
        yield Problem(kind=ProblemKind.READ_AS_ZERO, part=value, read="0", better="1")
    elif rest := compiled(_NUMBER).sub("", value, count=1).strip():
        yield Problem(kind=ProblemKind.CUT_OFF, part=rest, read=str(found), better=str(found))
    elif not (0 if variable.default else -2) <= found <= 1:
        yield Problem(kind=ProblemKind.OUT_OF_RANGE, part=value, read=str(found), better="0..1")


def _int(variable: Variable, value: str) -> Iterator[Problem]:
    if variable.syntax is Syntax.PYTHON:
        if not re.fullmatch(r"\s*[+-]?\d+(?:_\d+)*\s*", value):
            yield Problem(kind=ProblemKind.STOPS, part=value)
            return
    elif number(value) is None:
        stops, meant = variable.syntax is Syntax.STOI, _switch_number(variable, value)
        if stops or meant != "0":
            kind = ProblemKind.STOPS if stops else ProblemKind.READ_AS_ZERO
            yield Problem(kind=kind, part=value, read="" if stops else "0", better=meant)
        return
    elif rest := compiled(_NUMBER).sub("", value, count=1).strip():
        if variable.owner == "openmp" and rest.startswith(","):  # one number for each level of nesting
            return
        yield Problem(kind=ProblemKind.CUT_OFF, part=rest, read=str(number(value)), better=_in_units(variable, value))
        return
    found = number(value) or 0
    if variable.power_of_two and found > 0 and found & (found - 1):
        yield Problem(
            kind=ProblemKind.WITHOUT_EFFECT, part=value, read=variable.default, better=str(1 << found.bit_length() - 1)
        )
    yield from _in_range(variable, float(found), value)


def _switch_number(variable: Variable, value: str) -> str:
    """The number meant by a word for on or off, of a variable that takes 0 and 1; "" where there is none."""
    word, (low, high) = value.strip().lower(), variable.range or (None, None)
    if low is None or low > 0 or high is None or not 1 <= high <= MAX_LEVELS:
        return ""
    return "0" if word in _OFF_WORDS else "1" if word in _TRUE | {"on", "enable", "enabled"} else ""


def _float(variable: Variable, value: str) -> Iterator[Problem]:
    try:
        found = float(value)
    except ValueError:
        yield Problem(
            kind=ProblemKind.STOPS if variable.syntax is Syntax.PYTHON else ProblemKind.READ_AS_ZERO,
            part=value,
            read="0",
        )
        return
    yield from _in_range(variable, found, value)


def _in_range(variable: Variable, found: float, value: str) -> Iterator[Problem]:
    low, high = variable.range or (None, None)
    if (low is not None and found < low) or (high is not None and found > high):
        yield Problem(kind=ProblemKind.OUT_OF_RANGE, part=value, read=f"{found:g}", better=_span(low, high))


def _span(low: float | None, high: float | None) -> str:
    """`0..7`; open at an end that is only a bound of reason."""
    start = f"{low:g}" if low is not None else ""
    return f"{start}..{high:g}" if high is not None and high < 1e6 else f">={start}"


_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _in_units(variable: Variable, value: str) -> str:
    """The number meant by `8M` or `30min`, in the variable's own unit; "" when it is not known."""
    match = re.fullmatch(r"\s*(\d{1,12})\s*([A-Za-z]{1,3})\s*", value)
    if match is None:
        return ""
    amount, unit = int(match[1]), match[2].lower()
    if variable.type is Type.SIZE and unit[0] in _UNITS and unit[1:] in {"", "b", "ib"}:
        return str(amount * _UNITS[unit[0]])
    own = {"s": 1.0, "ms": 1000.0}.get(variable.unit)
    if own and unit in _SECONDS:
        return f"{amount * _SECONDS[unit] * own:.0f}"
    return ""


def _enum(variable: Variable, value: str) -> Iterator[Problem]:
    yield from _word(variable, value, value)


def _form(variable: Variable, value: str) -> Iterator[Problem]:
    """What the row's pattern says; an error of a parser that raises ends the program."""
    if not re.fullmatch(variable.pattern, value[:MAX_FORM_CHARS]):
        kind = ProblemKind.STOPS if variable.syntax in _EMPTY_STOPS else ProblemKind.MALFORMED
        yield Problem(kind=kind, part=value, better=" / ".join(variable.values))


def _word(variable: Variable, word: str, value: str) -> Iterator[Problem]:
    """One word that must be among the values, or a number that reads as one of them."""
    if word in variable.values:
        return
    same = next((v for v in variable.values if v.upper() == word.strip().upper()), None)
    if same is not None and word == word.strip():
        if not variable.ignore_case:
            yield Problem(kind=ProblemKind.WRONG_CASE, part=word, better=same)
        return
    is_number = (
        all(v.lstrip("-").isdecimal() for v in variable.values) and not compiled(_NUMBER).sub("", word, count=1).strip()
    )
    if is_number and str(number(word)) in variable.values:
        return
    near = same or variable.meant.get(word.strip().lower()) or _near(word.strip().lower(), variable.values)
    if near or not variable.open:
        yield Problem(kind=ProblemKind.UNKNOWN_WORD, part=word or value, better=near or ", ".join(variable.values))


def _list(variable: Variable, value: str) -> Iterator[Problem]:
    separators = "[,;]" if variable.open else ","  # libfabric's layers: "verbs;ofi_rxm"
    for word in re.split(separators, value.removeprefix("^") if variable.inverts else value)[:64]:
        yield from _word(variable, word, value)


def _algo(variable: Variable, value: str) -> Iterator[Problem]:
    """`ring,tree;allreduce:^tree`: lists per function."""
    for clause in value.split(";")[:32]:
        _, colon, words = clause.rpartition(":")
        for word in (words if colon else clause).removeprefix("^").split(",")[:32]:
            yield from _word(variable, word.strip() if colon else word, value)


def _address(value: str) -> Iterator[Problem]:
    host, colon, port = value.rpartition(":")
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        yield Problem(kind=ProblemKind.MALFORMED, part=value, better="HOST:PORT, [IPV6]:PORT")
    elif not colon or not host or not port.isdecimal():
        yield Problem(kind=ProblemKind.MALFORMED, part=value, better="HOST:PORT")
    elif not 0 < int(port[:9]) < 65536:
        yield Problem(kind=ProblemKind.OUT_OF_RANGE, part=port, read=port, better="1..65535")


def _port(value: str) -> Iterator[Problem]:
    if not re.fullmatch(r"\d{1,9}", value.strip()):
        yield Problem(kind=ProblemKind.STOPS, part=value)
    elif not 0 <= int(value) < 65536:
        yield Problem(kind=ProblemKind.OUT_OF_RANGE, part=value, read=value, better="1..65535")


def _host(value: str) -> Iterator[Problem]:
    if re.match(r"\w+://", value) or not compiled(_HOST).fullmatch(value):
        yield Problem(kind=ProblemKind.MALFORMED, part=value, better="HOST")


def _cidr(value: str) -> Iterator[Problem]:
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        yield Problem(kind=ProblemKind.MALFORMED, part=value, better="10.0.0.0/16")


def _cpus(value: str) -> Iterator[Problem]:
    if not compiled(_CPUS).fullmatch(value.replace(" ", "")):
        yield Problem(kind=ProblemKind.MALFORMED, part=value, better="0-7,16")


def _ucx_devices(value: str) -> Iterator[Problem]:
    """Names as they stand between commas: UCX trims nothing, and knows no = in front."""
    if value != (better := re.sub(r"\s*,\s*", ",", value.strip()).replace("^=", "^").lstrip("=")):
        yield Problem(kind=ProblemKind.MALFORMED, part=value, better=better)


def _path(value: str) -> Iterator[Problem]:
    if value.startswith("~"):
        yield Problem(kind=ProblemKind.LITERAL_TILDE, part=value, better="/home/USER" + value[1:])


def _gpus(variable: Variable, value: str) -> Iterator[Problem]:
    if variable.readers == (Reader.CONTAINER,):
        return
    words = [word.strip() for word in value.split(",")[:256]]
    for number, word in enumerate(words):
        if word and not compiled(_GPU).fullmatch(word):
            yield Problem(kind=ProblemKind.MALFORMED, part=word, better="0,1,2,3")
            return
        if word.startswith("-"):
            return  # the list ends there
        if word and word in words[:number]:  # CUDA then shows no GPU at all
            yield Problem(kind=ProblemKind.STOPS, part=value, better=",".join(dict.fromkeys(words)))
            return


def _flags(variable: Variable, value: str) -> Iterator[Problem]:
    """Flags between blanks; of those in the table the value as well, at which XLA ends the process if it is wrong."""
    for word in value.split()[:256]:
        if not word.startswith("--") and "=" in word:
            yield Problem(kind=ProblemKind.MALFORMED, part=word, better=f"--{word.lstrip('-')}")
        elif word.startswith("--xla_tpu_") and variable.name == "XLA_FLAGS":
            yield Problem(kind=ProblemKind.STOPS, part=word, better="LIBTPU_INIT_ARGS")
        else:
            yield from _flag(word)


def _flag(word: str) -> Iterator[Problem]:
    """The value of one flag of XLA, where it is known what the flag takes."""
    name, equals, given = word.partition("=")
    kind = flag_types().get(name)
    if "$" in given or "{{" in given:
        return
    row = load().get(name)
    if row is not None and equals and row.type in {Type.FORM, Type.ENUM, Type.LIST}:
        wrong = [p for p in _CHECKS[row.type](row, given) if given]
        yield from (Problem(kind=ProblemKind.STOPS, part=word, better=f"{name}={p.better}") for p in wrong[:1])
        return
    if kind is None:
        return
    if kind is Type.BOOL and equals and given.lower() not in {"true", "false", "1", "0"}:
        yield Problem(
            kind=ProblemKind.STOPS, part=word, better=f"{name}={'false' if given.lower() in _OFF_WORDS else 'true'}"
        )
    elif kind is Type.INT and not re.fullmatch(r"[-+]?\d{1,19}", given):
        yield Problem(kind=ProblemKind.STOPS, part=word, better=f"{name}={_flag_number(name, given)}")
    elif not equals and kind is not Type.BOOL:
        yield Problem(kind=ProblemKind.STOPS, part=word, better=f"{name}=")


def _flag_number(name: str, given: str) -> str:
    """The number meant by `8M` or `30s`, by the unit in the flag's name; "N" where that is not known."""
    match = re.fullmatch(r"(\d{1,9})([A-Za-z]{1,3})", given)
    if match is None:
        return "N"
    unit = match[2].lower()
    if name.endswith("_bytes") and unit[0] in _UNITS and unit[1:] in {"", "b", "ib"}:
        return str(int(match[1]) * _UNITS[unit[0]])
    return f"{int(match[1]) * _SECONDS[unit]:.0f}" if "_seconds" in name and unit in _SECONDS else "N"


def _options(variable: Variable, value: str) -> Iterator[Problem]:
    for option in re.split(r",(?![^\[]*\])", value)[:64]:
        name, colon, given = option.strip().partition(":")
        if not colon or not name:
            yield Problem(kind=ProblemKind.STOPS, part=option.strip(), better="name:value")
        elif variable.values and name not in variable.values and (near := _near_option(name, variable.values)):
            yield Problem(kind=ProblemKind.STOPS, part=name, better=near)
        elif name in variable.forms and "$" not in given and not re.fullmatch(variable.forms[name], given.strip()):
            yield Problem(
                kind=ProblemKind.STOPS, part=option.strip(), better=f"{name}:{_example(variable.forms[name], given)}"
            )


def _example(form: str, given: str) -> str:
    """A value that fits: of words the one that is meant, else nothing that could be copied by mistake."""
    words = form.split("|")
    if not all(map(str.isalnum, words)):
        return "N"
    meant = {True: "False", False: "True"}[given.strip().lower() in _OFF_WORDS]
    return meant if meant in words else next((w for w in words if w.lower() == given.strip().lower()), words[0])


def _near_option(name: str, names: tuple[str, ...]) -> str:
    """As `_near`, or the option whose unit is left out: `max_split_size` for `max_split_size_mb`."""
    return next((other for other in names if len(name) > 3 and other.startswith(f"{name}_")), "") or _near(name, names)


def _near(word: str, words: tuple[str, ...]) -> str:
    """The word that `word` is a slip of the pen for; an option may also be newer than the table."""
    limit = 1 if len(word) < LONG_WORD else 2
    near = ((distance(word.lower(), other.lower(), limit), other) for other in words if 2 < len(word) <= MAX_WORD)
    return min(((steps, other) for steps, other in near if steps is not None), default=(0, ""))[1]


_FORMS = {
    Type.ADDRESS: _address, Type.PORT: _port, Type.HOST: _host, Type.CIDR: _cidr, Type.CPUS: _cpus, Type.PATH: _path,
    Type.UCX_DEVICES: _ucx_devices,
}  # fmt: skip
"""What every variable of these types takes."""
_CHECKS = {
    Type.BOOL: _bool, Type.INT: _int, Type.SIZE: _int, Type.FLOAT: _float, Type.ENUM: _enum, Type.LIST: _list,
    Type.ALGO: _algo, Type.GPUS: _gpus, Type.FLAGS: _flags, Type.OPTIONS: _options, Type.FORM: _form,
}  # fmt: skip
