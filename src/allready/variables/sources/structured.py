"""Kubernetes manifests, compose files and launchers' configurations, in YAML or JSON.

Nothing is constructed: the text is only parsed into nodes, which know their lines.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from allready.errors import AllreadyError
from allready.model.settings import Slip, SourceKind
from allready.patterns import compiled
from allready.variables.sources.loaders import plans_in_tree
from allready.variables.sources.parsed import MAX_NODES, NAME, Parsed
from allready.variables.sources.plain import parse_dotenv, parse_toml
from allready.variables.sources.shell import parse_arguments, parse_shell

_KEY = (
    r"(?:[a-z]*env|[a-z]*envs|environ|[a-z]*environment|[a-z]*env(?:ironment)?var(?:iable)?s?(?:list)?|variables|envset"
    r"|literals)"
)
"""Under these keys, in small letters without `-` and `_`, stand variables."""


def is_key(key: str) -> bool:
    """Whether variables stand under this key: `env`, `environment`, `extraEnvVars`, `env_variables`, ..."""
    return compiled(_KEY).fullmatch(key.lower().replace("_", "").replace("-", "")) is not None


_PAIR = r"(?s)([A-Za-z_][A-Za-z0-9_]*)=(.*)"
_PAIRED = r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\."
"""One character beyond 16 bits, which JSON writes as two; or another escape, of which no part begins one."""
_SETS = r"(?:^|[\s;&(\"'])[A-Z][A-Z0-9_]*=\S"
_FILE = r"[\w.-]+\.(?:ya?ml|json)"
MAX_INNER = 20
"""Depth below which a file within a file is not read."""
_TEXT, _NULL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"
_COMMENT = r"(?m)^[ ]*//.*$"
_TEMPLATE = r"(?m)^[ \t]*(?:- )?(?:[\w./\"'$-]{1,100}:[ \t]+)?(?:\{\{|\{%)"
"""What Helm and Jinja write where YAML would have a value."""
_ACTION = r"(?s)\{\{.{0,20000}?\}\}|\{%.{0,20000}?%\}|\{#.{0,20000}?#\}"
_CONTROL = r"\{[%#]|\{\{-?\s*(?:if|else|end|range|with|define|block|template|/\*|\$\w*\s*:?=)"
_UNKNOWN = "$(TEMPLATE)"
MAX_NESTED = 500
_BRACKETS = r"[\[\]{}]"
_NESTED_ENTRIES = rf"(?m)(?:[-?:][ \t]+){{{MAX_NESTED}}}|^ {{4000}}"
"""Lists within lists on one line, and a line that stands as far to the right as a thousand levels do."""
MAX_DEPTH = 100


class YamlMissingError(AllreadyError):
    """PyYAML is not installed."""


def parse_structured(text: str, found: Parsed) -> None:
    """All variables in a YAML or JSON file; it is a Kubernetes manifest if one of its documents is.

    Raises:
        YamlMissingError: PyYAML is not installed.
    """
    if found.source.endswith(".toml"):
        parse_toml(text, found, is_key)
        return
    try:
        import yaml
    except ImportError as error:
        raise YamlMissingError("reading YAML and JSON needs PyYAML: pip install pyyaml") from error
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if compiled(_TEMPLATE).search(text):
        text = _without_actions(text)
    elif text.lstrip()[:1] in {"{", "["}:
        text = text.replace("\t", "  ")  # JSON may be indented with tabs, YAML may not
        text = compiled(_COMMENT).sub("", text)  # as editors and devcontainers allow
        text = compiled(_PAIRED).sub(lambda escape: str(json.loads(f'"{escape[1]}"')) if escape[1] else escape[0], text)
    documents = []
    if _is_too_deep(text):
        found.slip(1, "nested too deeply", Slip.UNREADABLE)
        return
    try:
        for document in yaml.compose_all(text, Loader=loader):
            documents += [document] if document is not None else []
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        found.slip(mark.line + 1 if mark else 1, str(getattr(error, "problem", error))[:100], Slip.UNREADABLE)
    except RecursionError:
        found.slip(1, "nested too deeply", Slip.UNREADABLE)
    if any({"apiVersion", "kind"} <= {k.value for k, _ in _pairs(document)} for document in documents):
        found.kind = SourceKind.KUBERNETES
    for document in documents:
        found.loaders += plans_in_tree(found.source, document)
        _Walk(found).visit(document, "env" if _is_flat(document) else "", 0)


def _without_actions(text: str) -> str:
    """A template as YAML with as many lines: what stands for a value is not known, what decides between lines is left
    out, so that all branches are read."""

    def instead(match: re.Match[str]) -> str:
        lines = "\n" * match[0].count("\n")
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        end = text.find("\n", match.end())
        after = text[match.end() : end if end >= 0 else len(text)]
        is_alone = not before.strip() and not after.strip()
        return lines if is_alone or compiled(_CONTROL).match(match[0]) else _UNKNOWN + lines

    return compiled(_ACTION).sub(instead, text)


def _is_too_deep(text: str) -> bool:
    """Whether a parser that calls itself for each level would end the process."""
    depth = 0
    for mark in compiled(_BRACKETS).finditer(text):
        depth = max(0, depth + (1 if mark[0] in "[{" else -1))
        if depth > MAX_NESTED:
            return True
    return compiled(_NESTED_ENTRIES).search(text) is not None


class _Walk:
    """One walk over a document; an alias is visited once."""

    def __init__(self, found: Parsed) -> None:
        self._found = found
        self._seen: set[tuple[int, bool]] = set()

    def visit(self, node: Any, key: str, depth: int) -> None:
        place = (id(node), is_key(key))  # an alias may stand for variables in one place only
        if place in self._seen or depth > MAX_DEPTH or len(self._seen) > MAX_NODES:
            return
        self._seen.add(place)
        if node.id == "scalar":
            if node.tag == _TEXT and (
                "export " in node.value or "\n" in node.value or compiled(_SETS).search(node.value)
            ):
                self._script(node)
        elif is_key(key):
            self._variables(node, depth)
        elif node.id == "sequence":
            words = [(str(c.value), c.start_mark.line + 1) for c in node.value if c.id == "scalar" and c.tag == _TEXT]
            if len(words) > 1 and not any("\n" in text for text, _ in words):
                parse_arguments([(text if " " not in text else "", line) for text, line in words], self._found)
            for child in node.value:
                self.visit(child, key, depth + 1)
        elif _adds_variables(node):
            added = _value_of(node)
            self._entry(added, depth) if added.id == "mapping" else self._variables(added, depth)
        else:
            if depth == 0:
                self._launcher(node)
            kind, around = _kind(node), self._found.scope
            if any(is_key(str(name.value)) and child.id != "scalar" for name, child in _pairs(node)):
                self._found.scope = (*around, node.start_mark.index)  # a program, or what several have in common
            for name, child in _pairs(node):
                self._child(kind, str(name.value), child, depth)
            self._found.scope = around

    def _launcher(self, document: Any) -> None:
        """What a configuration of Accelerate says in words of its own."""
        entries = {str(name.value): child for name, child in _pairs(document)}
        if not {"distributed_type", "num_processes"} <= entries.keys():
            return
        for key, name in _OF_ACCELERATE.items():
            if (value := entries.get(key)) is not None and value.id == "scalar" and value.tag != _NULL:
                self._assign(name, value, must_be_text=False)

    def _child(self, kind: str, name: str, child: Any, depth: int) -> None:
        """What stands under a key that is none of variables, in a mapping of this kind."""
        if name in _DATA.get(kind, ()):
            self._data(child, depth)
        elif kind == "Secret" and name == "data":
            self._encoded(child)
        elif child.id == "scalar" and (name == "patch" or (name.lower().endswith("yaml") and "\n" in child.value)):
            self._file(child, depth)
        else:
            self.visit(child, name, depth + 1)

    def _data(self, node: Any, depth: int) -> None:
        """What a ConfigMap or a Secret holds: variables, files of variables, scripts."""
        for name, child in _pairs(node):
            if child.id != "scalar" or not compiled(NAME).fullmatch(name.value) or "\n" in child.value:
                lines = [line for line in str(child.value).split("\n") if line.strip() and line.lstrip()[0] != "#"]
                if child.id == "scalar" and compiled(_FILE).fullmatch(str(name.value)):
                    self._file(child, depth)
                elif child.id == "scalar" and lines and all(map(compiled(_PAIR).fullmatch, map(str.strip, lines))):
                    first = child.start_mark.line + (2 if child.style in {"|", ">"} else 1)
                    parse_dotenv(child.value, self._found, first_line=first)
                else:
                    self.visit(child, "", depth + 1)
            elif name.value.isupper():
                self._assign(name.value, child, must_be_text=True)

    def _encoded(self, node: Any) -> None:
        """What a Secret holds in base64."""
        for name, child in _pairs(node):
            if child.id == "scalar" and name.value.isupper() and compiled(NAME).fullmatch(name.value):
                try:
                    value = base64.b64decode(child.value, validate=True).decode()
                except ValueError:
                    value = None
                self._found.assign(name.value, value, child.start_mark.line + 1)

    def _variables(self, node: Any, depth: int) -> None:
        """`{A: b}`, `[A=b]` or `[{name: A, value: b}]`."""
        if node.id == "mapping":
            for name, child in _pairs(node):
                if child.id == "scalar":
                    self._assign(str(name.value), child, must_be_text=False)
                elif name.value == "<<":
                    for merged in child.value if child.id == "sequence" else (child,):
                        self.visit(merged, "env", depth + 1)
                elif (value := _value_of(child)) is not None and value.id == "scalar" and str(name.value).isupper():
                    self._assign(str(name.value), value, must_be_text=False)
                else:
                    self.visit(child, str(name.value), depth + 1)
            return
        for child in node.value:
            if child.id == "scalar":
                if match := compiled(_PAIR).fullmatch(child.value):
                    self._found.assign(match[1], None if "$" in match[2] else match[2], child.start_mark.line + 1)
            elif child.id == "mapping":
                self._entry(child, depth)

    def _entry(self, node: Any, depth: int) -> None:
        parts = {str(name.value): child for name, child in _pairs(node)}
        name, value = parts.get("name"), parts.get("value")
        if name is None and parts and all(part.isupper() and compiled(NAME).fullmatch(part) for part in parts):
            self._variables(node, depth)
        elif name is None or name.id != "scalar":
            self.visit(node, "", depth + 1)
        elif value is not None and value.id == "scalar":
            self._assign(name.value, value, must_be_text=True)
        elif compiled(NAME).fullmatch(name.value):
            self._found.assign(name.value, None, name.start_mark.line + 1)

    def _assign(self, name: str, value: Any, *, must_be_text: bool) -> None:
        line = value.start_mark.line + 1
        if not compiled(NAME).fullmatch(name):
            return
        if value.tag == _NULL:  # taken from where the program is started, or left out
            self._found.assign(name, None, line)
            return
        if must_be_text and value.tag != _TEXT:
            self._found.slip(line, f"{name}: {value.value}", Slip.NOT_A_TEXT)
        known = not any(mark in value.value for mark in ("$(", "${", "{{"))
        self._found.assign(name, value.value if known else None, line)

    def _script(self, node: Any) -> None:
        """A command line or a script among the arguments."""
        inner = self._found.within()
        parse_shell(node.value, inner, first_line=_first_line(node))
        self._found.settings += [s for s in inner.settings if s.exported or "\n" in node.value]

    def _file(self, node: Any, depth: int) -> None:
        """A file of YAML or JSON within a ConfigMap, or a patch."""
        inner = self._found.within()
        if depth < MAX_INNER:
            parse_structured(node.value, inner)
        first = _first_line(node) - 1
        self._found.settings += [replace(s, line=(s.line or 1) + first) for s in inner.settings]


_OF_ACCELERATE = {"main_process_ip": "MASTER_ADDR", "main_process_port": "MASTER_PORT"}
"""What `accelerate launch` makes variables of for the ranks (accelerate/utils/launch.py)."""
_DATA = {"ConfigMap": ("data",), "Secret": ("stringData",)}
"""What manifests of these kinds hold under these keys may become variables (envFrom)."""


def _first_line(node: Any) -> int:
    """The number of the line on which a scalar's text begins."""
    return int(node.start_mark.line) + (2 if node.style in {"|", ">"} else 1)


def _value_of(node: Any) -> Any:
    """What stands under `value` in a mapping, or None."""
    return next((child for name, child in _pairs(node) if name.value == "value"), None)


def _adds_variables(node: Any) -> bool:
    """Whether a mapping is a step of a JSON patch that adds to an `env`."""
    path = next((str(child.value) for name, child in _pairs(node) if name.value == "path"), "")
    return re.search(r"/env(?:/-|/\d+)?$", path) is not None and _value_of(node) is not None


def _kind(node: Any) -> str:
    return next((str(child.value) for name, child in _pairs(node) if name.value == "kind"), "")


def _is_flat(node: Any) -> bool:
    """Whether a document is nothing but variables: a saved environment."""
    names = [str(name.value) for name, child in _pairs(node) if child.id == "scalar"]
    return (
        bool(names)
        and len(names) == len(node.value)
        and all(compiled(NAME).fullmatch(n) and n.isupper() for n in names)
    )


def _pairs(node: Any) -> Iterator[tuple[Any, Any]]:
    """Keys and values of a mapping; nothing for other nodes."""
    if node.id == "mapping":
        for name, child in node.value:
            if name.id == "scalar":
                yield name, child
