"""What a value means on this machine: `allready env explain NAME --value VALUE`."""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from allready import units
from allready.model import Interface
from allready.variables import filters, table, values
from allready.variables.here import Here
from allready.variables.table import Syntax, Type, Variable
from allready.variables.values import ProblemKind

MAX_SHOWN = 16
ACK_TIMER_S = 4.096e-6
"""Unit of InfiniBand's acknowledgement timer, which counts in powers of two."""
RETRIES = 7


class Meaning(Struct, frozen=True):
    """One sentence: `env.means_KEY` among the texts, with values for its placeholders; of a mistake, its kind."""

    key: str
    values: Mapping[str, object] = {}
    problem: ProblemKind | None = None


class _Asked(Struct, frozen=True):
    """What is to be explained."""

    variable: Variable
    value: str
    here: Here


def meaning(variable: Variable, value: str, here: Here) -> list[Meaning]:
    """Sentences on a value, the mistakes in it first.

    here: what is known of this machine; without it filters are read, but not applied.
    """
    if variable.is_folk:
        return [Meaning("unread")]
    problems = [
        Meaning(
            f"problem_{p.kind.value.replace('-', '_')}",
            {"part": p.part or '""', "read": p.read, "better": p.better},
            problem=p.kind,
        )
        for p in values.check(variable, value)
    ]
    explain = _BY_NAME.get(variable.name) or _BY_TYPE.get(variable.type)
    is_unread = explain in {None, _word, _words} or (explain in {_number, _size} and values.number(value) is None)
    stops = any(p.problem is ProblemKind.STOPS for p in problems[:1])
    found: list[Meaning] = []
    if not value and variable.syntax is not Syntax.PRESENCE and explain is not _gpus:
        found = [] if stops else [Meaning("empty")]
    elif not stops and not (problems and is_unread):
        found = list(explain(_Asked(variable, value, here))) if explain is not None else [Meaning("text")]
    if values.is_debug_value(variable, value):
        found.append(Meaning("debug"))
    return problems + found


def _switch(asked: _Asked) -> Iterator[Meaning]:
    yield Meaning("on" if values.is_on(asked.variable, asked.value) else "off")


def _number(asked: _Asked) -> Iterator[Meaning]:
    number = values.number(asked.value)
    if asked.variable.type is Type.FLOAT or number is None:
        yield Meaning("text")
    elif asked.variable.unit:
        yield Meaning("number_of", {"number": number, "unit": asked.variable.unit})
    else:
        yield Meaning("number", {"number": number})


def _size(asked: _Asked) -> Iterator[Meaning]:
    number = values.number(asked.value)
    if number is None or number < 1024:
        yield from _number(asked)
        return
    yield Meaning("size", {"number": number, "size": units.size(number)})


def _word(asked: _Asked) -> Iterator[Meaning]:
    yield Meaning("word", {"word": asked.value, "words": ", ".join(asked.variable.values)})


def _words(asked: _Asked) -> Iterator[Meaning]:
    if ":" in asked.value or ";" in asked.value:  # lists per function
        yield Meaning("text")
    elif asked.value.startswith("^"):
        words = {word.upper() for word in asked.value[1:].split(",")}
        left = [word for word in asked.variable.values if word.upper() not in words and word != "ALL"]
        yield Meaning("all_but", {"words": ", ".join(left)})
    else:
        yield Meaning("list", {"words": ", ".join(asked.value.split(","))})


def _ack_timer(asked: _Asked) -> Iterator[Meaning]:
    number = values.number(asked.value)
    if number is None or not 1 <= number <= 31:
        yield Meaning("for_ever")
        return
    one = ACK_TIMER_S * 2**number
    yield Meaning("ack_timer", {"one": f"{one:.3g}", "retries": RETRIES, "all": f"{one * RETRIES:.3g}"})


def _gid(asked: _Asked) -> Iterator[Meaning]:
    index = values.number(asked.value)
    if index is None or index < 0:
        yield Meaning("gid_automatic")
        return
    ports = asked.here.active("Ethernet")
    for port in ports[:MAX_SHOWN]:
        kind, gid = port.gid_types.get(index, ("", ""))
        device = f"{port.device}:{port.port}"
        if kind:
            yield Meaning("gid", {"device": device, "type": kind, "gid": gid})
        else:
            yield Meaning("gid_missing", {"device": device, "index": index})
    if not ports:
        yield Meaning("gid_nowhere" if asked.here.rdma is not None else "not_known_here")


def _log_file(asked: _Asked) -> Iterator[Meaning]:
    yield Meaning("log_file", {"example": asked.value.replace("%h", "node0").replace("%p", "12345")})


def _gpus(asked: _Asked) -> Iterator[Meaning]:
    if asked.here.gpu is None:
        yield Meaning("not_known_here")
        return
    chosen: list[str] = []
    for word in asked.value.split(","):
        gpu = next((g for g in asked.here.gpu.gpus if word.strip() == str(g.index) or _is_uuid(word, g.uuid)), None)
        if gpu is None:
            break  # what follows an unknown one does not count
        chosen.append(f"{gpu.index} ({gpu.name})")
    yield Meaning("gpus", {"gpus": ", ".join(chosen[:MAX_SHOWN])}) if chosen else Meaning("no_gpu")


def _is_uuid(word: str, uuid: str) -> bool:
    return word.strip().startswith("GPU-") and uuid.startswith(word.strip())


def _interfaces(asked: _Asked) -> Iterator[Meaning]:
    if len(asked.value) < 2:
        yield Meaning("one_letter")
        return
    wanted = filters.parse(asked.value, most=filters.MAX_INTERFACES)
    yield _form(wanted)
    if asked.here.net is None:
        yield Meaning("not_known_here")
        return
    there = in_order(asked.here.net.interfaces)
    yield from _selection([i.name for i in there if wanted.selects(i.name)], [i.name for i in there], first=True)


def in_order(interfaces: Sequence[Interface]) -> list[Interface]:
    """Those that NCCL considers, in its order: with an address, IPv4 before IPv6."""
    usable = [i for i in interfaces if i.is_up and i.addresses]
    return sorted(usable, key=lambda i: all(ipaddress.ip_interface(a).version == 6 for a in i.addresses))


def _form(wanted: filters.Filter) -> Meaning:
    names = ", ".join(f"{e.name}:{e.port}" if e.port >= 0 else e.name for e in wanted.entries)
    kind = ("not_" if wanted.exclude else "only_") + ("exact" if wanted.exact else "prefix")
    return Meaning(f"filter_{kind}", {"names": names})


def _selection(chosen: Sequence[str], there: Sequence[str], *, first: bool = False) -> Iterator[Meaning]:
    if not chosen:
        yield Meaning("selects_nothing", {"there": ", ".join(there[:MAX_SHOWN]) or "-"})
        return
    yield Meaning("selects", {"names": ", ".join(chosen[:MAX_SHOWN])})
    if left := [name for name in there if name not in chosen]:
        yield Meaning("leaves_out", {"names": ", ".join(left[:MAX_SHOWN])})
    if first:
        yield Meaning("first", {"name": chosen[0]})


def _exact_interfaces(asked: _Asked) -> Iterator[Meaning]:
    if len(asked.value) < 2:
        yield Meaning("one_letter")
        return
    names = filters.exact_names(asked.value)
    yield Meaning("exact_names", {"names": ", ".join(repr(n) if n != n.strip() else n for n in names)})
    if asked.here.net is None:
        yield Meaning("not_known_here")
        return
    there = [i.name for i in asked.here.net.interfaces if i.addresses]
    for name in names:
        if name not in there:
            yield Meaning("no_interface", {"name": repr(name), "there": ", ".join(there[:MAX_SHOWN])})


def _devices(asked: _Asked) -> Iterator[Meaning]:
    wanted = filters.parse(asked.value)
    yield _form(wanted)
    if asked.here.rdma is None:
        yield Meaning("not_known_here")
        return
    active = asked.here.active()
    if not active:
        yield Meaning("no_rdma")
        return
    chosen = [f"{p.device}:{p.port}" for p in active if wanted.selects(p.device, p.port)]
    yield from _selection(chosen, [f"{p.device}:{p.port}" for p in active])


def _ucx(asked: _Asked) -> Iterator[Meaning]:
    there = [f"{p.device}:{p.port}" for p in asked.here.active()]
    there += [i.name for i in asked.here.net.interfaces if i.addresses] if asked.here.net else []
    if asked.here.net is None and asked.here.rdma is None:
        yield Meaning("not_known_here")
        return
    yield from _selection(filters.ucx_selects(asked.value, there), there)


def _flags(asked: _Asked) -> Iterator[Meaning]:
    for word in asked.value.split()[:64]:
        flag, _, given = word.partition("=")
        row = table.find(flag) if flag.startswith("--") else None
        if row is not None:
            yield Meaning("flag", {"flag": flag, "value": given or "true"})
        else:
            yield Meaning("flag_not_listed", {"flag": flag})


_BY_NAME = {
    "NCCL_IB_TIMEOUT": _ack_timer,
    "NCCL_IB_GID_INDEX": _gid,
    "NCCL_DEBUG_FILE": _log_file,
    "CUDA_VISIBLE_DEVICES": _gpus,
}
_BY_TYPE = {
    Type.BOOL: _switch, Type.INT: _number, Type.FLOAT: _number, Type.SIZE: _size, Type.IFNAMES: _interfaces,
    Type.EXACT_IFNAMES: _exact_interfaces, Type.HCAS: _devices, Type.UCX_DEVICES: _ucx, Type.ENUM: _word,
    Type.LIST: _words, Type.ALGO: _words, Type.FLAGS: _flags,
}  # fmt: skip
