"""The grammars by which variables choose interfaces and devices, read as the libraries read them.

- NCCL (NCCL_SOCKET_IFNAME, NCCL_IB_HCA): `[^][=]entry,entry`; without `=` an entry is a prefix; `:port:rail:plane` may
  follow a device.  Nothing is trimmed, and a mark counts at the very beginning only.
- Gloo and TensorPipe: exact names, separated by commas.
- UCX: `device:port` or the name of an interface, exact; `^` leaves out.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

MAX_INTERFACES, MAX_HCAS = 16, 32
"""How many entries of its filters NCCL reads."""
WILDCARDS = frozenset("*?[]")
BETWEEN = frozenset("; \t|")
"""What people put between entries beside the comma; no interface has it in its name."""
MAX_ENTRIES = 256
"""Of a list that has no limit of its own."""


class FilterEntry(Struct, frozen=True):
    """One entry of a filter of NCCL; -1 stands for any port."""

    name: str
    port: int = -1


class Filter(Struct, frozen=True, kw_only=True):
    """A filter of NCCL, read."""

    exclude: bool = False
    exact: bool = False
    entries: tuple[FilterEntry, ...] = ()

    def selects(self, name: str, port: int = -1) -> bool:
        """Whether NCCL takes this interface or device; a filter without entries matches everything."""
        return (
            not self.entries or any(_matches(e, name, port, exact=self.exact) for e in self.entries)
        ) != self.exclude


class Flaw(Struct, frozen=True):
    """What is written otherwise than its author means.  kind: "blank", "mark-inside", "mark-order", "empty-entry",
    "foreign-mark", "wildcard", "bad-port" or "rail"."""

    kind: str
    entry: str


def parse(value: str, *, most: int = MAX_HCAS) -> Filter:
    """Read a value of NCCL_SOCKET_IFNAME, NCCL_IB_HCA or NCCL_OOB_NET_IFNAME; any text has a reading.

    most: entries beyond this many do not count, `MAX_INTERFACES` for interfaces.
    """
    exclude = value.startswith("^")
    rest = value[1:] if exclude else value
    exact = rest.startswith("=")
    words = (rest[1:] if exact else rest).split(",")
    entries = [FilterEntry(name, _port(word)) for word in words if (name := word.partition(":")[0])]
    return Filter(exclude=exclude, exact=exact, entries=tuple(entries[:most]))


RAILS_SINCE = (2, 30)
"""The first NCCL that reads `:rail:plane` behind the port of a device."""
MAX_PARTS = 4
"""Of an entry: device, port, rail, plane."""


def flaws(value: str, *, has_rails: bool = True) -> list[Flaw]:
    """What in a filter of NCCL is surely not meant as it is read.

    Args:
        has_rails: this NCCL reads a rail and a plane behind the port; an older one passes over them.
    """
    found: list[Flaw] = []
    body = value.lstrip("^=")
    marks = value[: len(value) - len(body)]
    if marks not in {"", "^", "=", "^="}:
        found.append(Flaw("mark-order", marks))
    words = body.split(",")[:MAX_ENTRIES]
    for word in words:
        if word != word.strip() or set(word) & BETWEEN:
            found.append(Flaw("blank", word))
        elif word[:1] in {"^", "="}:
            found.append(Flaw("mark-inside", word))
        elif not word and len(words) > 1:
            found.append(Flaw("empty-entry", value))
        elif set(word) & WILDCARDS:
            found.append(Flaw("wildcard", word))
        elif not _has_numbers(word):
            found.append(Flaw("bad-port", word))
        elif word.count(":") > 1 and not has_rails:
            found.append(Flaw("rail", word))
    return found


def _has_numbers(word: str) -> bool:
    """Whether only numbers stand behind the name, and no more than there are meanings for."""
    name, *parts = word.split(":")
    return not parts or (bool(name) and len(parts) < MAX_PARTS and all(not p or p.isdecimal() for p in parts))


def exact_names(value: str) -> list[str]:
    """The interfaces that Gloo or TensorPipe searches for."""
    return value.removesuffix(",").split(",")[:MAX_ENTRIES]


def exact_flaws(value: str) -> list[Flaw]:
    """What in a list of exact names is surely not meant as it is read: NCCL's marks, blanks, empty entries."""
    found: list[Flaw] = []
    for word in exact_names(value):
        if word[:1] in {"^", "="}:
            found.append(Flaw("foreign-mark", word))
        elif set(word) & WILDCARDS:
            found.append(Flaw("wildcard", word))
        elif word != word.strip() or set(word) & BETWEEN:
            found.append(Flaw("blank", word))
        elif not word:
            found.append(Flaw("empty-entry", word))
    return found


def ucx_flaws(value: str) -> list[Flaw]:
    """What in a list of UCX's devices is surely not meant as it is read: NCCL's =, and ^ in front of a later entry."""
    words = [word.strip() for word in value.removeprefix("^").split(",")[:MAX_ENTRIES]]
    return [Flaw("foreign-mark", word) for word in words if word[:1] in {"^", "="}]


def ucx_selects(value: str, devices: Iterable[str]) -> list[str]:
    """Those of `devices` (`mlx5_0:1`, `eth0`) that UCX takes; all where the value has a pattern that is not known."""
    names = list(devices)
    exclude = value.startswith("^")
    words = {word.strip() for word in value.removeprefix("^").split(",") if word.strip()}
    if "all" in words or any(set(word) & set("*?[") for word in words):
        return names
    return [name for name in names if (name in words) != exclude]


def more_than_meant(value: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Entry -> what it takes beside the interface or device of exactly this name: eth1 -> [eth10, eth11].

    An entry that is no name here is meant as a prefix.
    """
    filtered = parse(value)
    if filtered.exact or filtered.exclude:
        return {}
    found: dict[str, list[str]] = {}
    for entry in filtered.entries:
        if entry.name in names and entry.name[-1:].isdigit():
            others = [n for n in names if n.startswith(entry.name) and n != entry.name]
            meant = {e.name for e in filtered.entries}
            if others := [n for n in others if n not in meant and n[len(entry.name)].isdigit()]:
                found[entry.name] = others
    return found


def _matches(entry: FilterEntry, name: str, port: int, *, exact: bool) -> bool:
    fits = name == entry.name if exact else name.startswith(entry.name)
    return fits and (entry.port == -1 or port in {-1, entry.port})


def _port(word: str) -> int:
    """The number after the first colon as atoi reads it; -1 when there is none."""
    text = word.partition(":")[2].partition(":")[0]
    if not text:
        return -1
    digits = re.match(r"\s*([0-9]{1,9})", text)
    return int(digits[1]) if digits else 0
