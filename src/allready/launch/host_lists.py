"""Nodes as schedulers and launchers write them: Slurm's node lists, host files, words, HOST:PORT."""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from allready.errors import UsageError
from allready.launch.identity import Identity
from allready.patterns import compiled

MAX_FILE_BYTES = 4 << 20
MAX_HOSTS = 65_536
MAX_DIGITS = 18  # of a number in a list
RESOLVE_ALL_S = 10.0
"""For resolving the names to find the own one, where no name fits; a resolver may take seconds for each."""

_PART = r"([^\[\],\s]*)(?:\[([^\]]+)\])?"


def read_host_file(path: str) -> str:
    """The text of a host file.

    Raises:
        OSError: it cannot be read.
    """
    with Path(path).open("rb") as file:
        return file.read(MAX_FILE_BYTES).decode("utf-8", "replace")


def hosts_in(kind: str, text: str, read: Callable[[str], str] = read_host_file) -> tuple[str, ...]:
    """The different hosts of a list, in its order; `kind` as `allready.launch.schedulers` has it.

    Raises:
        UsageError: it is no such list.
        OSError: its file cannot be read.
    """
    if kind == "nodelist":
        found: Sequence[str] = expand_nodelist(text)
    elif kind == "file":
        lines = (line.split("#")[0].split() for line in read(text).splitlines())
        found = [words[0].partition(":")[0] for words in lines if words]
    elif kind == "pairs":
        found = text.split()[::2]
    else:
        found = [word for word in re.split(r"[\s,;]+", text.strip().strip("[]")) if word]
    return tuple(dict.fromkeys(word.strip("\"'") for word in found))[:MAX_HOSTS]


def place_of(own: Identity, hosts: Sequence[str]) -> int | None:
    """Where this machine stands in the list: by its name, else by its address."""
    for place, host in enumerate(hosts):
        if own.has_name(host):
            return place
    deadline = time.monotonic() + RESOLVE_ALL_S
    for place, host in enumerate(hosts):
        if time.monotonic() > deadline:
            break
        if own.has_address(host):
            return place
    return None


def expand_nodelist(text: str) -> tuple[str, ...]:
    """Every host of a Slurm node list: `gpu[003-004,11],login1` gives gpu003, gpu004, gpu11, login1."""
    hosts: list[str] = []
    groups = re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text)
    if ",".join(groups) != text:
        raise UsageError("not a Slurm node list: {text!r}", text=text)
    for group in groups:
        names = [""]
        for prefix, inside in compiled(_PART).findall(group):
            endings = [prefix + number for number in _numbers(inside, text)] if inside else [prefix]
            if len(names) * len(endings) > MAX_HOSTS:
                raise UsageError("not a Slurm node list: {text!r}", text=text)
            names = [name + ending for name in names for ending in endings]
        hosts += [name for name in names if name]
    if not hosts or len(hosts) > MAX_HOSTS:
        raise UsageError("not a Slurm node list: {text!r}", text=text)
    return tuple(hosts)


def _numbers(inside: str, text: str) -> list[str]:
    found: list[str] = []
    for part in inside.split(","):
        first, _, last = part.partition("-")
        last = last or first
        is_short = max(len(first), len(last)) <= MAX_DIGITS
        if not (is_short and first.isdecimal() and last.isdecimal() and 0 <= int(last) - int(first) < MAX_HOSTS):
            raise UsageError("not a Slurm node list: {text!r}", text=text)
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def tasks_on_node(text: str, node_rank: int) -> int:
    """Slurm's tasks per node, `2(x3),1`, at place `node_rank`."""
    place = 0
    for part in text.split(","):
        match = re.fullmatch(rf"(\d{{1,{MAX_DIGITS}}})(?:\(x(\d{{1,{MAX_DIGITS}}})\))?", part.strip())
        if not match:
            raise UsageError("not Slurm's tasks per node: {text!r}", text=text)
        count, repeat = int(match.group(1)), int(match.group(2) or 1)
        place += repeat
        if node_rank < place:
            return count
    raise UsageError(
        "Slurm's tasks per node {text!r} name {place} nodes, this is node {node_rank}",
        text=text,
        place=place,
        node_rank=node_rank,
    )


def split_endpoint(text: str, source: str = "--rdzv-endpoint") -> tuple[str, int | None]:
    """`host`, `host:port`, `[::1]:port`, `[::1]`, `::1` as (host, port or None)."""
    word = text.strip()
    match = re.fullmatch(r"\[([0-9A-Za-z:.%_-]+)\](?::(\d{1,5}))?|([^\s:\[\]/,]+)(?::(\d{1,5}))?", word)
    if match:
        port = match[2] or match[4]
        if port is None or int(port) <= 65535:
            return match[1] or match[3], int(port) if port else None
    elif word.count(":") > 1 and re.fullmatch(r"[0-9A-Fa-f:.]+(%[0-9A-Za-z._-]+)?", word):
        return word, None
    raise UsageError(
        "{source} {text!r}: write HOST:PORT, for example gpu01:29500 or [fd00::1]:29500", source=source, text=text
    )
