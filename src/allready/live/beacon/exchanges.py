"""Sends and receives between two ranks, which no recorder of Gloo writes down: with whom, under which tag, from where.

All of torch.distributed's functions for them (`send`, `irecv`, `batch_isend_irecv`, those of pipelines) end in three
methods of the process group.  Each of these is exchanged for one that notes its arguments and calls it.
"""

import sys
import time
from _thread import get_ident
from _weakref import ref
from collections import deque

from allready.live.beacon.compiler import hide_from_compiler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import CodeType, FrameType
    from typing import Any

    Place = tuple[tuple[CodeType, int], ...]
    Noted = tuple[str, bool, int, int, int, int, Place]

MAX_CALLS = 512
MAX_KINDS = 1024
MAX_FRAMES = 3
_MAX_DEPTH = 24
_METHODS = (("send", True, "dstRank"), ("recv", False, "srcRank"), ("recv_anysource", False, ""))
ANY = -1


class ExchangeNotes:
    """What this process sent and received.  `attach` in the heartbeat's thread; notes are taken where the script
    calls."""

    def __init__(self, note_problem: "Callable[[str, Exception], None]") -> None:
        self._calls: deque[Noted] = deque(maxlen=MAX_CALLS)
        self._made: dict[tuple[int, str, bool, int], int] = {}  # each key is written by one thread
        self._groups: dict[str, tuple[ref[Any], str]] = {}
        self._num_groups = 0
        self._is_partial = False
        self._library = ""
        self._note_problem = note_problem

    def attach(self, module: "Any") -> None:
        """Begin to note.  `module`: torch.distributed's, all of it there."""
        kind = getattr(module, "ProcessGroup", None)
        if kind is None:
            return
        self._library = str(getattr(module, "__file__", "")).rpartition("distributed")[0].rpartition("distributed")[0]
        for name, is_send, peer in _METHODS:
            plain = getattr(kind, name, None)
            if plain is None or hasattr(plain, "noted_by_allready"):
                continue
            noting = self._noting(plain, is_send=is_send, peer_name=peer)
            try:
                setattr(kind, name, noting)
            except (AttributeError, TypeError) as error:  # a torch whose groups are closed
                self._miss(f"sends and receives are not noted ({name})", error)
        is_initialized = getattr(module, "is_initialized", bool)
        self._is_partial |= bool(is_initialized())  # there may have been calls before this
        hide_from_compiler((self._note, self._place, self._label, self._miss), self._note_problem)

    def _noting(self, plain: "Callable[..., Any]", *, is_send: bool, peer_name: str) -> "Callable[..., Any]":
        def exchange(*args: "Any", **kwargs: "Any") -> "Any":
            try:
                self._note(is_send, peer_name, sys._getframe(1), args, kwargs)  # noqa: SLF001 - who calls
            except Exception as error:  # noqa: BLE001 - another torch; nothing is known of this call, and the script goes on
                self._miss("a send or receive cannot be read", error)
            return plain(*args, **kwargs)

        exchange.__name__, exchange.__doc__ = plain.__name__, plain.__doc__
        exchange.noted_by_allready = True  # type: ignore[attr-defined]
        hide_from_compiler((exchange,), self._note_problem)
        return exchange

    def _note(
        self, is_send: bool, peer_name: str, frame: "FrameType", args: "tuple[Any, ...]", kwargs: "Mapping[str, Any]"
    ) -> None:
        group = self._label(args[0])
        tensors = args[1] if len(args) > 1 else kwargs["tensors"]
        rest = list(args[2:])
        peer = ANY if not peer_name else int(rest.pop(0) if rest else kwargs[peer_name])
        tag = int(rest[0] if rest else kwargs["tag"])
        self._calls.append((group, is_send, peer, tag, int(tensors[0].numel()), time.time_ns(), self._place(frame)))
        key = (get_ident(), group, is_send, peer)
        if key in self._made or len(self._made) < MAX_KINDS:
            self._made[key] = self._made.get(key, 0) + 1
        else:
            self._is_partial = True

    def _label(self, group: "Any") -> str:
        """Its name and a number: torch gives a name again once the group is gone."""
        name = str(group.group_name)
        known = self._groups.get(name)
        if known is not None and known[0]() is group:
            return known[1]
        self._num_groups += 1
        label = f"{name} {self._num_groups}"
        if known is not None or len(self._groups) < MAX_KINDS:
            self._groups[name] = (ref(group), label)
        else:
            self._is_partial = True
        return label

    def _miss(self, what: str, error: Exception) -> None:
        self._is_partial = True
        self._note_problem(what, error)

    def _place(self, frame: "FrameType | None") -> "Place":
        """The innermost frames outside of torch."""
        found: list[tuple[CodeType, int]] = []
        for _ in range(_MAX_DEPTH):
            if frame is None or len(found) == MAX_FRAMES:
                break
            code = frame.f_code
            if not code.co_filename.startswith(self._library):
                found.append((code, frame.f_lineno))
            frame = frame.f_back
        return tuple(found)

    def noted(self, members: "Mapping[str, Sequence[int]]") -> "dict[str, Any]":
        """The last calls (group, whether it sends, the other rank or -1 for any, tag, elements, when, number of its
        place), the places (frames outside of torch, innermost first), and how many calls there were of each kind
        (group, whether it sends, the other rank, number) since the start; {} where there were none.  Beside them,
        where calls are missing in these, `partial`.

        Args:
            members: of groups, in their order; a group that is not among them is left out, and so is one whose name
                another one has since.
        """
        names = {label: name for name, (_, label) in self._groups.copy().items()}
        places: dict[Place, int] = {}
        calls = []
        for label, is_send, peer, tag, numel, at_ns, place in self._calls.copy():
            other = _global(members.get(names.get(label, "")), peer)
            if other is not None:
                calls.append([names[label], is_send, other, tag, numel, at_ns, places.setdefault(place, len(places))])
        partial = {"partial": True} if self._is_partial else {}
        if not calls:
            return partial
        made: dict[tuple[str, bool, int], int] = {}
        for (_, label, is_send, peer), number in self._made.copy().items():
            other = _global(members.get(names.get(label, "")), peer)
            if other is not None:
                made[names[label], is_send, other] = made.get((names[label], is_send, other), 0) + number
        return {
            "calls": calls,
            "places": [_named(place) for place in places],
            "made": [[*kind, number] for kind, number in made.items()],
            **partial,
        }


def _global(members: "Sequence[int] | None", peer: int) -> int | None:
    if members is None:
        return None
    return ANY if peer == ANY else members[peer] if 0 <= peer < len(members) else None


def _named(place: "Place") -> list[list[object]]:
    return [[code.co_filename, line, code.co_name] for code, line in place]
