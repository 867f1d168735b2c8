"""torch's flight recorders in this process, as its version has them.

Up to 2.6 there is NCCL's alone, or its pickle.  2.7 added one for the CPU backends, and 2.15 made of that one recorder
for each backend, asked by the backend's name; whether it takes a name is tried.  Gloo and the NCCL backend of
releases before 2.15 write their recorders themselves; in all others a hook of torch on the process group does, which
counts otherwise.
"""

import sys

from allready.live.beacon import names
from allready.names import GLOO, GROUP_COUNTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from allready.live.beacon.group import GroupCounters

    Counts = tuple[int, int | None, int | None]

_LARGEST_COUNT = 1 << 60
_NAMES_OF = {"nccl": ("nccl2",)}
"""torch's name of a backend -> what the backend calls itself, by which its recorder is asked, where that is another."""
_HAVE_NO_OTHER = {GLOO, "nccl-legacy", "xccl", "fake", "undefined"}
"""Backends without a recorder that a hook writes."""


class TorchRecorder:
    """One of torch's recorders.

    `is_hooked`: written by a hook, which numbers operations of all kinds from 0 in its status.  `notes_late`: Gloo's
    threads note what completed in no order: of two operations the earlier one may come last and stay.
    `shows_completion`: -1 completed is none so far, and not unknown.
    """

    def __init__(
        self, ring: "Callable[..., Any] | None", dump: "Callable[..., Any] | None", backend: str, *, is_named: bool
    ) -> None:
        self.ring, self.dump, self.backend = ring, dump, backend
        self._name = (backend,) if is_named else ()
        self.known: dict[str, tuple[str, str]] = {}  # the recorder's number of a group -> name, description
        self.groups: dict[str, GroupCounters] = {}  # by that number
        self.is_broken = False
        self.is_used = False
        self.notes_late = backend == GLOO
        self.is_hooked = is_named and backend != GLOO
        self.shows_completion = not self.is_hooked  # a hook of a backend without completion hooks never does

    def read_ring(self) -> bytes:
        """All entries as JSON, without stacks."""
        if self.ring is not None:
            data = self.ring(True, False, *self._name)
            return data.encode() if isinstance(data, str) else bytes(data)
        from json import dumps
        from pickle import loads as unpickle

        assert self.dump is not None
        said = unpickle(self.dump(True, False, False, *self._name))  # noqa: S301 - as below
        return dumps(said, separators=(",", ":")).encode()

    def read_dump(self) -> bytes:
        """torch's own pickle: all entries with their stacks."""
        assert self.dump is not None
        data = self.dump(True, True, False, *self._name)
        return data.encode("latin-1") if isinstance(data, str) else bytes(data)

    def status(self) -> "dict[str, Counts]":
        """The recorder's number of a group -> how many operations it enqueued, started and completed."""
        if self.ring is not None:
            from json import loads

            decoded = loads(self.ring(False, False, *self._name))
        elif self.dump is not None:
            from pickle import loads as unpickle

            # torch made it, in this process
            decoded = unpickle(self.dump(False, False, False, *self._name))  # noqa: S301
        else:
            return {}
        status = decoded.get("pg_status") if isinstance(decoded, dict) else None
        found = {}
        for number, entry in list(status.items()) if isinstance(status, dict) else ():
            counts = _counts(entry, first=0 if self.is_hooked else 1)
            if counts is not None:
                found[str(number)] = counts
                self.shows_completion |= counts[2] is not None
        if self.shows_completion:  # the first operation of a group hangs like any other
            found = {n: (enqueued, started, completed or 0) for n, (enqueued, started, completed) in found.items()}
        return found


def find_sources(known: "Iterable[TorchRecorder]", backends: "Iterable[str]") -> list[TorchRecorder]:
    """The recorders of this process: those of the GPUs first, Gloo's last.

    Args:
        known: what was found before, which is kept.
        backends: as torch calls those of the process groups (`cpu:gloo,cuda:nccl`); to ask for a backend's recorder
            makes it, so only those that are in use are asked for.
    """
    module = sys.modules.get("torch._C._distributed_c10d")
    before = {source.backend: source for source in known}
    found = []
    legacy = getattr(module, "_dump_nccl_trace_json", None), getattr(module, "_dump_nccl_trace", None)
    if any(legacy):
        found.append(before.get("nccl") or TorchRecorder(*legacy, "nccl", is_named=False))
    others = getattr(module, "_dump_fr_trace_json", None), getattr(module, "_dump_fr_trace", None)
    if any(others):
        is_named = any(source.is_hooked for source in before.values()) or _takes_a_name(*others)
        wanted = _wanted(backends) if is_named else []
        found += [before.get(name) or TorchRecorder(*others, name, is_named=True) for name in wanted]
        found.append(before.get(GLOO) or TorchRecorder(*others, GLOO, is_named=is_named))
    return found[-len(names.RINGS) :]


def files_of(used: "Iterable[TorchRecorder]") -> "dict[str, int]":
    """Backend -> which of `names.RINGS` is that of its recorder: the first of those in use has the first."""
    places: dict[str, int] = {}
    for at, source in enumerate(used):
        places[source.backend] = 0 if not at else 1 if source.backend == GLOO else at + 1
    return places


def _wanted(backends: "Iterable[str]") -> list[str]:
    """What the recorders that a hook writes are asked by; torch calls a group that it cannot place `c10d`."""
    found: list[str] = []
    for name in _names_in(backends):
        found += [n for n in _NAMES_OF.get(name, (name,)) if n and n not in _HAVE_NO_OTHER]
    found += ["c10d"] if found else []
    return list(dict.fromkeys(found))


def _takes_a_name(ring: "Callable[..., Any] | None", dump: "Callable[..., Any] | None") -> bool:
    try:
        if ring is not None:
            ring(False, False, GLOO)
        elif dump is not None:
            dump(False, False, False, GLOO)
    except TypeError:
        return False
    return True


def _counts(entry: object, first: int) -> "Counts | None":
    """(enqueued, started, completed) of operations numbered from `first`; the recorder's -1 is None, not known."""
    if not isinstance(entry, dict):
        return None
    counts = []
    for key in GROUP_COUNTS:
        try:
            number = int(entry.get(key, -1))
        except (TypeError, ValueError):
            number = -1
        counts.append(number + 1 - first if 0 <= number < _LARGEST_COUNT else None)
    return None if counts[0] is None else (counts[0], counts[1], counts[2])


def backends_in_use(c10d: object) -> "list[str]":
    """torch's words on the backends of all process groups (`cpu:gloo,cuda:nccl`), and what those of another make call
    themselves."""
    configs: Mapping[Any, Any] = getattr(getattr(c10d, "_world", None), "pg_backend_config", None) or {}
    found = [str(config) for config in list(configs.values())]
    if not all(name in _HAVE_NO_OTHER or name in _NAMES_OF for name in _names_in(found)):
        for group in list(configs):
            found += _own_names(group)
    return found


def _own_names(group: "Any") -> list[str]:
    try:
        return [str(group._get_backend(device).name()) for device in group._device_types]  # noqa: SLF001
    except Exception:  # noqa: BLE001 - a group of another make; nothing is known but its configuration
        return []


def _names_in(configs: "Iterable[str]") -> list[str]:
    return [part.rpartition(":")[2] for text in configs for part in text.split(",")]
