"""A call into C has no frame: what the user's code calls there is read from its source.

`work.wait()`, `loss.item()` and a compiled JAX function resemble computing in a stack.  Asked only of a main thread
that makes no progress without using a CPU, and once for each place.
"""

import builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

METHODS = {
    "wait": "torch", "value": "torch", "item": "gpu", "cpu": "gpu", "tolist": "gpu", "numpy": "gpu", "to": "gpu",
    "synchronize": "gpu", "block_until_ready": "jax",
}  # fmt: skip
"""Methods in which a thread may wait for other ranks -> as in `phase.BLOCKING`."""

OTHER_WAITS = frozenset({
    "accept", "acquire", "connect", "epoll", "fdatasync", "flock", "fsync", "get", "getline", "input", "iowait", "join",
    "lock", "lockf", "next", "open", "pause", "poll", "put", "read", "readinto", "readline", "readlines", "recv",
    "recv_into", "recvfrom", "recvmsg", "select", "send", "sendall", "sendfile", "sendmsg", "sigtimedwait", "sigwait",
    "sigwaitinfo", "sleep", "system", "wait3", "wait4", "waitid", "waitpid", "write", "writelines",
})  # fmt: skip
"""Calls that wait for something else than other ranks, whatever object they belong to."""

_MAX_LINES = 50
_MAX_SOURCE_BYTES = 4 << 20


class BlockingCalls:
    """Remembers the last place, for a thread stands long where it stands."""

    def __init__(self) -> None:
        self._last: tuple[tuple[int, int, bool], str] = ((0, 0, False), "")

    def blocking(self, call: "tuple[CodeType, int, dict[str, Any]] | None", *, is_jax_job: bool) -> str:
        """What kind of waiting the call may be: "torch", "gpu", "jax", or "" for none that concerns other ranks.

        `is_jax_job`: then a compiled function waits too, and such a function may have any name; "other" is a call that
        is known to wait for something else.
        """
        if call is None:
            return ""
        code, instruction, names = call
        key = id(code), instruction, is_jax_job
        if self._last[0] != key:
            text = callee(code, instruction)
            kind = METHODS.get(text.rpartition(".")[2], "") if "." in text else ""
            if not kind and is_jax_job:
                is_other = text.rpartition(".")[2] in OTHER_WAITS
                kind = "jax" if may_be_compiled(text, names) else "other" if is_other else ""
            self._last = key, kind
        return self._last[1]


def may_be_compiled(text: str, names: "dict[str, Any]") -> bool:
    """Whether what is called by this name can be a compiled function of JAX; local names may be anything but a
    well-known wait."""
    first, *rest = text.split(".")
    if not text or not all(part.isidentifier() for part in (first, *rest)):
        return bool(text) and text.rpartition(".")[2] not in OTHER_WAITS
    found = names.get(first, vars(builtins).get(first, _ABSENT))
    for part in rest:
        if type(found) is not type(builtins):  # only modules are searched: anything else could run code
            found = _ABSENT
            break
        found = vars(found).get(part, _ABSENT)
    if found is not _ABSENT:
        return (type(found).__module__ or "").partition(".")[0] in {"jaxlib", "jax"}
    return (rest[-1] if rest else first) not in OTHER_WAITS


_ABSENT = object()


def callee(code: "CodeType", instruction: int) -> str:
    """The text of what is called at an instruction: `work.wait` in `x = f(work.wait())`; "" when it cannot be had."""
    place = next((p for at, p in enumerate(code.co_positions()) if at == instruction // 2), None)
    if place is None:
        return ""
    line, last_line, column, last_column = place
    if line is None or last_line is None or column is None or last_column is None or last_line - line > _MAX_LINES:
        return ""
    try:
        with open(code.co_filename, "rb") as file:  # noqa: PTH123 - pathlib would have to be imported
            lines = file.read(_MAX_SOURCE_BYTES).splitlines()[line - 1 : last_line]
    except OSError:
        return ""
    if not lines:
        return ""
    lines[-1] = lines[-1][:last_column]
    text = b"".join(lines)[column:].decode("utf-8", "replace").rstrip()
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            return text[:at].strip() if text[at] == "(" else ""
    return ""
