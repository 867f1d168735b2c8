"""`py-spy dump --json`: a list with one object per thread."""

import json
from collections.abc import Mapping
from typing import Any

from allready.evidence.stacks.threads import OpenProcess, OpenThread
from allready.evidence.untyped import as_dict, as_int, as_list, as_text
from allready.json_bounds import memory_bytes
from allready.model import Frame
from allready.model.fill import said
from allready.model.finding import Phrase

_DECODER = json.JSONDecoder()
MAX_THREADS = 20_000
MAX_BYTES = 96 << 20


def take_json(text: str, start: int, line: int) -> tuple[list[OpenProcess], int, Phrase | None]:
    """The processes of the list that begins at `start`, where it ends, and what was wrong with it."""
    if memory_bytes(text, start) > MAX_BYTES:
        return [], len(text), said("a list of threads that would take too much memory")
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return [], len(text), said("broken JSON")
    if not isinstance(value, list):
        return [], end, said("not a list of threads")
    found: dict[int, OpenProcess] = {}
    for item in value[:MAX_THREADS]:
        thread = as_dict(item)
        pid = _number(thread.get("pid"))
        if pid is None:
            continue
        process = found.get(pid)
        if process is None:
            info = as_dict(thread.get("process_info"))
            process = found[pid] = OpenProcess(
                line=line,
                kind="py-spy",
                pid=pid,
                parent=_number(as_dict(info.get("parent")).get("pid")),
                command=as_text(info.get("command_line"))[:4000],
            )
        _take_thread(process, thread)
    return list(found.values()), end, None


def _take_thread(process: OpenProcess, thread: Mapping[str, Any]) -> None:
    state = "gil" if thread.get("owns_gil") is True else "active" if thread.get("active") is True else "idle"
    ident = _number(thread.get("os_thread_id")) or _number(thread.get("thread_id"))
    opened = process.begin(
        OpenThread(name=as_text(thread.get("thread_name"))[:200], state=state, ident=str(ident or ""))
    )
    for item in as_list(thread.get("frames")):
        frame = as_dict(item)
        file = as_text(frame.get("short_filename")) or as_text(frame.get("filename"))
        opened.add(Frame(function=as_text(frame.get("name"))[:200], file=file[-400:], line=_number(frame.get("line"))))
        for value in as_list(frame.get("locals")):
            local = as_dict(value)
            text = as_text(local.get("repr"))
            if local.get("name") in {"global_rank", "world_rank"} and text.isdecimal() and len(text) < 8:
                process.rank = int(text)


def _number(value: object) -> int | None:
    return as_int(value, 1, (1 << 63) - 1)
