"""A report with other strings in every place where a stranger's text can stand."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec

from allready.model import Report

STRUCTURE = frozenset({"outcome", "schema", "code"})
"""Fields whose text chooses what is drawn; changed only where `everywhere` is asked for."""

PAYLOADS = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "</style><b>", "</title>",
    "javascript:alert(1)", "<!-- ", "-->", "]]>", "{{ 7*7 }}", "{% raw %}", "&lt;b&gt;", "\x1b[31mred\x1b]0;owned\x07",
    "[bold red]x[/]", "\u202egnp.exe", "a\nb\r\nc", "\x00", "\udcff", "http://evil.example/x.js", "{0} {nodes} %s",
)  # fmt: skip


def changed(report: Report, change: Callable[[str], str], *, everywhere: bool = False) -> Report:
    """`report` with `change` applied to every text that is not empty."""
    result = _walk(report, change, everywhere)
    assert isinstance(result, Report)
    return result


def _walk(value: Any, change: Callable[[str], str], everywhere: bool) -> Any:
    if isinstance(value, Enum) or value is None:
        return value
    if isinstance(value, str):
        return change(value) if value else value
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(_walk(v, change, everywhere) for v in value)
    if isinstance(value, tuple | list):
        return type(value)(_walk(v, change, everywhere) for v in value)
    if isinstance(value, msgspec.Struct):
        named = msgspec.structs.asdict(value)
        return msgspec.structs.replace(
            value, **{n: _walk(v, change, everywhere) for n, v in named.items() if everywhere or n not in STRUCTURE}
        )
    if isinstance(value, dict):
        if set(value) == {"missing"} and not everywhere:
            return value
        # Names of variables and versions are a stranger's; names of facts and their fields are ours.
        return {
            (change(k) if isinstance(k, str) and (k.isupper() or everywhere) else k): v
            if k in STRUCTURE and not everywhere
            else _walk(v, change, everywhere)
            for k, v in value.items()
        }
    return value
