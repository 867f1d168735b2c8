"""Text that came from undecodable bytes (a file name, a variable, a host name) carries halves of surrogate pairs."""

from typing import Any

import msgspec


def to_json(body: Any) -> bytes:
    """Any body as JSON; what came from undecodable bytes is escaped."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(msgspec.to_builtins(body, str_keys=True)))


def without_surrogates(value: Any) -> Any:
    """Plain data (strings, numbers, lists, dicts) with every such half written as an escape, so that it is UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {without_surrogates(k): without_surrogates(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_surrogates(v) for v in value]
    return value
