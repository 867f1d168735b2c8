"""One TOML file for all nodes: [job] for all nodes, [node."name or address"] for one of them.

    [job]
    script = "train.py"
    nproc-per-node = 8
    max-restarts = 3
    env = { NCCL_DEBUG = "WARN" }

    [node.gpu01]
    master = true
    [node.gpu02]
    devices = [0, 1, 2, 3]

Keys are the long names of the flags.  The whole file is checked before anything starts, on every node alike.
"""

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from allready.errors import UsageError
from allready.launch.config_check import check_nodes
from allready.launch.config_model import ConfigFile, FileSettings, Section
from allready.launch.flag_kinds import KINDS
from allready.launch.flag_table import FLAGS, Flag
from allready.launch.identity import Identity, own_identity
from allready.patterns import compiled

MAX_BYTES = 1 << 20
_BY_KEY = {
    name: flag for flag in FLAGS if flag.where for name in (flag.dest, *(a.replace("-", "_") for a in flag.also))
}
_JOB_KEYS = {"script", "arguments", "env", *_BY_KEY}
_NODE_KEYS = {"address", "master", "env", *(name for name, flag in _BY_KEY.items() if flag.where == "node")}
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_SCALARS: dict[str, tuple[type, ...]] = {
    "whole": (int,), "count": (int,), "positive": (int,), "number": (int, float), "seconds": (int, float),
    "seconds_or_auto": (int, float, str), "nodes": (int, str), "nproc": (int, str), "names": (str, int),
    "numbers": (str, int), "backoff": (str, int, float), "level": (str, bool), "streams": (str, int),
    "settings": (str,), "text": (str, int),
}  # fmt: skip
_LISTED = {"names", "numbers", "backoff"}
_SHOWN = {
    "whole": "a whole number", "count": "a whole number", "positive": "a whole number", "number": "seconds",
    "seconds": "seconds", "seconds_or_auto": 'seconds or "auto"', "nodes": 'a number or "MIN:MAX"',
    "nproc": 'a number, "gpu", "cpu", "xpu" or "auto"', "names": 'a list such as ["a", "b"]',
    "numbers": "a list such as [0, 1]", "backoff": "[base, most, jitter]", "level": 'a level such as "INFO"',
    "streams": 'a string such as "3"', "settings": "a table or a string", "text": "a string", "switch": "true or false",
}  # fmt: skip


def read_config(
    path: str, node_name: str | None = None, *, identity: Callable[[], Identity] = own_identity
) -> FileSettings:
    """Load, check the whole file, pick this node's section.

    Raises:
        UsageError: with file, line and key: not TOML, an unknown key, a wrong type or value, ranks that do not fit, or
            no section for this node.
    """
    file = load(path)
    check_nodes(file)
    return settings_of(file, pick(file, node_name, identity))


def load(path: str) -> ConfigFile:
    """Read the file; keys and types are checked, not whether the nodes fit together."""
    try:
        with Path(path).open("rb") as source:
            data = source.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError("--config {path}: {reason}", path=path, reason=error.strerror or error) from None
    if len(data) > MAX_BYTES:
        raise UsageError("--config {path}: larger than {limit} MiB", path=path, limit=MAX_BYTES >> 20)
    try:
        text = data.decode("utf-8")
        content = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise UsageError(
            "{path}: not UTF-8 text: {reason} at byte {start}", path=path, reason=error.reason, start=error.start
        ) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError("{path}: not TOML: {error}", path=path, error=error) from None
    reader = _Reader(path, text)
    for key, value in content.items():
        if key not in {"job", "node"} or not isinstance(value, dict):
            raise UsageError(
                '{at}: {key}: a file has [job] and [node."NAME"] sections only', at=reader.at((key,)), key=key
            )
    job = reader.section("", ("job",), content.get("job", {}), _JOB_KEYS)
    nodes = []
    for name, table in content.get("node", {}).items():
        if not isinstance(table, dict) or not name.strip():
            raise UsageError('{at}: write [node."NAME"] above the keys of a node', at=reader.at(("node", name)))
        nodes.append(reader.section(name, ("node", name), table, _NODE_KEYS))
    return ConfigFile(path=path, job=job, nodes=tuple(nodes))


def pick(file: ConfigFile, node_name: str | None, identity: Callable[[], Identity]) -> Section | None:
    """This node's section: by --node-name, by host name, by any own address.  None if the file has no sections.

    Raises:
        UsageError: none or several fit.
    """
    listed = ", ".join(section.name for section in file.nodes) or "none"
    if node_name is not None:
        named = [s for s in file.nodes if node_name in {s.name, s.address}]
        if len(named) != 1:
            raise UsageError(
                "--node-name {node_name}: {path} has no such node; there are: {listed}",
                node_name=node_name,
                path=file.path,
                listed=listed,
            )
        return named[0]
    if not file.nodes:
        return None
    me = identity()
    fits = [s for s in file.nodes if me.has_name(s.name)] or [
        s for s in file.nodes if any(me.has_address(word) for word in (s.name, s.address) if word)
    ]
    if len(fits) == 1:
        return fits[0]
    if fits:
        both = " and ".join(f'[node."{s.name}"]' for s in fits)
        raise UsageError("{path}: {both} are both this machine; choose one with --node-name", path=file.path, both=both)
    raise UsageError(
        "{path}: no [node] is this machine ({names}); there are: {listed}.  Add a section, or choose one "
        "with --node-name",
        path=file.path,
        names=", ".join((*me.names, *me.addresses)),
        listed=listed,
    )


def settings_of(file: ConfigFile, section: Section | None) -> FileSettings:
    """Node before job; a node rank from the order of the sections, where none has one."""
    job = file.job
    values, sources = dict(job.values), dict(job.sources)
    if section is not None:
        values.update(section.values)
        sources.update(section.sources)
    master = _master(file)
    order = node_order(file)
    if section is not None and "node_rank" not in values and order:
        values["node_rank"] = order.index(section.name)
        sources["node_rank"] = section.where
    return FileSettings(
        values=values,
        sources=sources,
        environment={**job.environment, **(section.environment if section else {})},
        script=job.script,
        arguments=job.arguments,
        node=section.name if section else None,
        num_nodes=len(file.nodes) or None,
        master=(master.address or master.name) if master else None,
        is_master=None if master is None or section is None else section is master,
    )


def node_order(file: ConfigFile) -> list[str]:
    """Names by node rank, when the file lists the whole job and gives no node rank: the master, then as they stand.

    Empty when the nodes have to agree instead: nnodes is not the number of sections.
    """
    asked = file.job.values.get("nnodes")
    if any("node_rank" in s.values for s in file.nodes) or (asked and asked != (len(file.nodes),) * 2):
        return []
    return [s.name for s in sorted(file.nodes, key=lambda s: not s.master)]


def _master(file: ConfigFile) -> Section | None:
    marked = [s for s in file.nodes if s.master]
    first = [s for s in file.nodes if s.values.get("node_rank") == 0]
    if not marked and not first and {"master_addr", "rdzv_endpoint"} & file.job.values.keys():
        return None
    order = node_order(file)
    return next(iter(marked or first or [s for s in file.nodes if order[:1] == [s.name]]), None)


class _Reader:
    """Reads the sections of one file and knows the lines."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text

    def at(self, keys: tuple[str, ...]) -> str:
        """FILE:LINE of a key, or FILE where the line is not known."""
        line = line_of(self._text, keys)
        return f"{self._path}:{line}" if line else self._path

    def section(self, name: str, keys: tuple[str, ...], table: Mapping[str, Any], valid: set[str]) -> Section:
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        more: dict[str, Any] = {"name": name, "where": self.at(keys)}
        for written, value in table.items():
            key, at = written.replace("-", "_"), self.at((*keys, written))
            if key not in valid:
                self._unknown(at, written, keys, valid)
            if key in {"env", "script", "arguments", "address", "master"}:
                more |= self._special(at, key, value)
                continue
            flag = _BY_KEY[key]
            if flag.dest in values:
                raise UsageError("{at}: {written} is given twice in this section", at=at, written=written)
            values[flag.dest] = _value(flag, value, f"{at}: {written}")
            sources[flag.dest] = at
        return Section(values=values, sources=sources, **more)

    def _unknown(self, at: str, written: str, keys: tuple[str, ...], valid: set[str]) -> None:
        key = written.replace("-", "_")
        section = "[job]" if keys == ("job",) else "[node]"
        if key in _JOB_KEYS:
            raise UsageError("{at}: {written} belongs to [job]: it is the same for all nodes", at=at, written=written)
        if key in _NODE_KEYS:
            raise UsageError('{at}: {written} belongs to a [node."NAME"]', at=at, written=written)
        near = difflib.get_close_matches(key, valid, n=1)
        meant = f"; did you mean {near[0].replace('_', '-')}?" if near else ""
        shown = ", ".join(sorted(name.replace("_", "-") for name in valid))
        raise UsageError(
            "{at}: {section} has no key {written}{meant}  Valid are: {shown}",
            at=at,
            section=section,
            written=written,
            meant=meant,
            shown=shown,
        )

    def _special(self, at: str, key: str, value: Any) -> dict[str, Any]:
        if key == "env":
            return {"environment": _environment(at, value)}
        if key == "master":
            if not isinstance(value, bool):
                raise UsageError("{at}: master is true or false; the address of node 0 is master-addr in [job]", at=at)
            return {"master": value}
        if key == "arguments":
            if not isinstance(value, list) or not all(isinstance(v, str | int | float) for v in value):
                raise UsageError('{at}: arguments is a list such as ["--lr", "0.1"]', at=at)
            return {"arguments": tuple(str(v) for v in value)}
        if not isinstance(value, str) or not value:
            raise UsageError("{at}: {key} is a string", at=at, key=key)
        return {key: value}


def _environment(at: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise UsageError('{at}: env is a table such as {{ NCCL_DEBUG = "INFO" }}', at=at)
    for name, word in value.items():
        if not compiled(VARIABLE).fullmatch(name):
            raise UsageError("{at}: env: {name!r} is not the name of a variable", at=at, name=name)
        if isinstance(word, bool) or not isinstance(word, str | int | float) or "\x00" in str(word):
            raise UsageError("{at}: env: {name} is a string or a number", at=at, name=name)
    return {name: str(word) for name, word in value.items()}


def _value(flag: Flag, value: Any, what: str) -> Any:
    if flag.kind == "switch":
        if not isinstance(value, bool):
            raise UsageError("{what} is true or false", what=what)
        return value
    if flag.kind == "choice":
        if value not in flag.choices:
            raise UsageError("{what} is one of {choices}", what=what, choices=", ".join(flag.choices))
        return value
    allowed = _SCALARS[flag.kind]
    parts = value if isinstance(value, list) and flag.kind in _LISTED else [value]
    if flag.kind == "settings" and isinstance(value, dict):
        parts = [f"{key}={word}" for key, word in value.items()]
    is_right = parts and all(isinstance(p, allowed) and (not isinstance(p, bool) or bool in allowed) for p in parts)
    if not is_right:
        raise UsageError("{what} is {shown}, not {value!r}", what=what, shown=_SHOWN[flag.kind], value=value)
    if flag.kind == "level" and isinstance(value, bool):
        return "INFO" if value else None
    try:
        return KINDS[flag.kind](",".join(str(part) for part in parts))
    except ValueError as error:
        raise UsageError("{what}: {error}", what=what, error=error) from None


_HEADER = r"\s*\[(?!\[)(.*)\]\s*(#.*)?"
_KEY = r"""\s*+((?:"(?:[^"\\]|\\.)*+"|'[^']*+'|[A-Za-z0-9_-]++|\s*+\.\s*+)++)\s*+="""  # never goes back


def line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """Line (from 1) where `keys` is given, as a header or as a key; else that of the closest table above it.

    A guess for texts inside multi-line strings, which may resemble keys; only messages use it.
    """
    best: tuple[int, int] | None = None  # depth, line
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = compiled(_HEADER).fullmatch(line)
        if header:
            table = _path(header[1]) or ()
            here = table
        else:
            match = compiled(_KEY).match(line)
            inner = _path(match[1]) if match else None
            if inner is None:
                continue
            here = table + inner
        depth = min(len(here), len(keys))
        if depth and here[:depth] == keys[:depth] and (best is None or depth > best[0]):
            best = (depth, number)
    return best[1] if best else None


def _path(written: str) -> tuple[str, ...] | None:
    try:
        found: object = tomllib.loads(f"{written} = 0")
    except tomllib.TOMLDecodeError:
        return None
    keys = []
    while isinstance(found, dict):
        key, found = next(iter(found.items()))
        keys.append(key)
    return tuple(keys)
