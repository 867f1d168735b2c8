"""Python stacks of this process, as text of the kind that `faulthandler` writes.

Called with the GIL held, as all Python is: frames of other threads do not change while they are read.
"""

import _thread
import sys

from allready.live.beacon.endless import is_endless
from allready.live.beacon.payload import compressed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

MAX_THREADS = 100
MAX_FRAMES = 200
_LONGEST_NAME = 80
_PEERS = {"send": "dst", "recv": "src"}
"""Of torch.distributed's functions that wait for one rank: in which argument they are given it."""
_PEERS_FILE = "distributed_c10d.py"
_PLAIN_LISTS = (list, tuple, range)
_MAKES, _MAKES_DEPTH, _LONGEST_MEMBERS, _LONGEST_NUMBER = "_new_group_with_tag", 12, 400, 10


def can_read_stacks() -> bool:
    """Whether this interpreter has a GIL: without it, frames of a running thread must not be touched."""
    ask = getattr(sys, "_is_gil_enabled", None)
    return ask is None or bool(ask())


def all_stacks(main: int, own_folder: str) -> bytes:
    """The stacks of all threads, the main one last; the innermost frame of each comes first.

    Left out are the thread that calls, and those that begin in `own_folder`.
    """
    frames = sys._current_frames()  # noqa: SLF001 - the documented way
    frames.pop(_thread.get_ident(), None)  # it holds this dictionary
    rows: list[tuple[int, list[tuple[str, int | None, str]], bool]] = []
    note = ""
    left_out = max(0, len(frames) - MAX_THREADS)
    for ident in [main, *(i for i in frames if i != main)][: MAX_THREADS + 1]:
        frame = frames.pop(ident, None)
        if frame is not None:
            rows.append((ident, *_walk(frame)))
            note = _note(frame) if ident == main else note
        del frame
    del frames
    names = _names()
    parts = [f"({left_out} more threads)\n"] if left_out else []
    for ident, walked, is_cut in reversed(rows):
        if ident != main and walked and not is_cut and walked[-1][0].startswith(own_folder):
            continue
        parts.append(as_text(ident, names.get(ident, ""), walked, is_cut=is_cut))
    if note:
        parts[-1] = parts[-1].removesuffix("\n") + f"  <{note}>\n\n"  # the main thread's is last
    return "".join(parts).encode("utf-8", "backslashreplace")


def as_text(ident: int, name: str, frames: "Iterable[tuple[str, int | None, str]]", *, is_cut: bool) -> str:
    """One thread's stack; file, line and function of its frames."""
    head = f"Thread 0x{ident:016x}{f' [{name}]' if name else ''} (most recent call first):\n"
    rows = [f'  File "{_line(f)}", line {"???" if at is None else at} in {_line(n)}\n' for f, at, n in frames]
    return head + "".join(rows) + ("  ...\n" if is_cut else "") + "\n"


def _walk(frame: "FrameType | None") -> tuple[list[tuple[str, int | None, str]], bool]:
    """File, line and function of each frame, and whether there were more of them."""
    found: list[tuple[str, int | None, str]] = []
    while frame is not None and len(found) < MAX_FRAMES:
        code = frame.f_code
        found.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return found, frame is not None


def _note(frame: "FrameType") -> str:
    """What the main thread's frames tell beside their lines; "" if nothing."""
    try:
        endless = is_endless(frame)
    except Exception:  # noqa: BLE001 - another Python's instructions, or its end, when nothing is imported any more
        endless = False
    return "endless" if endless else _waits_for(frame) or _makes(frame)


def _waits_for(frame: "FrameType | None") -> str:
    """For which rank the innermost call of torch.distributed waits, if it sends to or receives from one; "" if not.

    As `evidence.stacks.text` reads it: `peer=3 group=world`, or `group=own` for one that is not that of all ranks.
    """
    for _ in range(3):  # below it there are wrappers at most
        if frame is None:
            break
        code = frame.f_code
        if code.co_name in _PEERS and code.co_filename.endswith(_PEERS_FILE):
            given = frame.f_locals
            peer, group = given.get(_PEERS[code.co_name]), given.get("group")
            world = getattr(frame.f_globals.get("GroupMember"), "WORLD", None)
            which = "world" if group is None or group is world else "own"
            return f"peer={peer} group={which}" if type(peer) is int and peer >= 0 else ""
        frame = frame.f_back
    return ""


def _makes(frame: "FrameType | None") -> str:
    """Of which ranks the group is that is being made; "" if none is, or they are too many without any order.

    As `evidence.stacks.text` reads it: `members=0-3`, or `members=all`, and the number that torch names it by, where
    there is one: ranks that made another one before call the same ranks by another name.
    """
    for _ in range(_MAKES_DEPTH):
        if frame is None:
            break
        if frame.f_code.co_name == _MAKES and frame.f_code.co_filename.endswith(_PEERS_FILE):
            given = frame.f_locals
            if given.get("use_local_synchronization"):
                return ""  # others may make groups of their own meanwhile
            ranks, name = given.get("ranks"), str(given.get("group_name", ""))
            members = list(ranks or ()) if type(ranks) in _PLAIN_LISTS else []
            if any(type(rank) is not int for rank in members):
                return ""  # to ask another object for its number runs code of its own, here
            is_world = ranks is None or (members != [] and members == list(range(given.get("global_world_size") or 0)))
            text = "all" if is_world else compressed(members)
            number = f" name={name}" if name.isdecimal() and len(name) < _LONGEST_NUMBER else ""
            return f"members={text}{number}" if 0 < len(text) <= _LONGEST_MEMBERS else ""
        frame = frame.f_back
    return ""


def _names() -> dict[int, str]:
    """What the script calls its threads; none where `threading` was never imported."""
    active = getattr(sys.modules.get("threading"), "_active", None)
    if not isinstance(active, dict):
        return {}
    found = {}
    for ident, thread in list(active.items()):
        name = getattr(thread, "_name", None)
        if isinstance(name, str):
            found[ident] = _line(name).replace("]", ")")[:_LONGEST_NAME]
    return found


def _line(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
