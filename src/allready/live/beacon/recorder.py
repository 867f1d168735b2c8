"""How far this rank came in each of its process groups, from torch's own flight recorder in this process.

Nothing of torch is imported: what it has loaded is asked, where it can be asked (see `sources`).  Arguments that no
recorder writes down (see `arguments`) are added to what it writes.
"""

import os
import sys
import time
from _thread import get_ident

from allready.live.beacon import names
from allready.live.beacon.arguments import MAX_MEMBERS, MODULE, Arguments
from allready.live.beacon.group import GroupCounters
from allready.live.beacon.payload import compressed
from allready.live.beacon.rhythm import BeaconRhythm
from allready.live.beacon.sources import TorchRecorder, backends_in_use, files_of, find_sources
from allready.names import ARGUMENTS, EXCHANGES, MEMBERS, TAKEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


RING_EVERY_S = 2.0
"""And two, four, ... times that, where it costs (about) more than its share.  All ranks read theirs in the same moments
of the wall clock: while one reads, it keeps the GIL and the others wait for it in their next operation, so that pauses
of many ranks at different times add up and those of the same moment do not."""
RING_SHARE = 0.0025
"""Of the time."""
CALM_EVERY_S = 8.0
"""Where operations come at the same speed as before, as long as the ring holds all of that time."""
_SELDOM_S = 64.0
_NAMES_EVERY_S = 1.0
_DOUBT_S = 0.4
"""What has been pending so long, and does not move, is searched in the ring."""
_MAX_NAMES, _LONGEST_NAMES = 4096, 2000
_MAX_GROUPS = 256
"""Whose members are written down, the newest ones."""
_HAS_ENTRIES = b'"pg_id":'
_ONE_ENTRY = b'"collective_seq_id":'


class FlightRecorders:
    """All of this process's recorders.  `sample` in the heartbeat's thread, `write_*` in the other one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._arguments = Arguments()
        self._sources: list[TorchRecorder] | None = None
        self.problems: list[str] = []
        self.ring_s: float | None = None
        self.has_groups = False
        self._ring_cost_s = 0.0
        self._ring_at = float("-inf")  # monotonic
        self._ring_wall_s = 0.0
        self._names_at = float("-inf")
        self._ring_entries = 0
        self._rhythm = BeaconRhythm()
        self._moves = self._moves_of_ring = 0
        self._num_groups = -1
        self._is_group_new = False
        self._needs_names = False
        self._members: dict[str, list[int]] = {}  # of groups, also of those that are gone: the last dump tells of them
        self._doubts = self._doubts_of_ring = -1  # the move after which something has been pending for long

    # -- the heartbeat's thread

    def sample(self, now_s: float) -> list[GroupCounters]:
        """The groups now; empty as long as there are none, or nothing reports them."""
        self._arguments.attach()
        if self._arguments.problem:
            self._note_problem(self._arguments.problem)
        if not self._has_groups():
            return []
        if self._sources is None or self._is_group_new:
            self._find_sources()
        found: dict[str, GroupCounters] = {}
        self._needs_names = False
        for source in self._sources or ():
            if source.is_broken:
                continue
            try:
                self._sample(source, now_s, found)
            except Exception as error:  # noqa: BLE001 - reported, and not asked again
                source.is_broken = True
                self._note_problem(f"the flight recorder does not answer: {type(error).__name__}: {error}")
        if found:
            self._rhythm.note(now_s, sum(group.enqueued for group in found.values()))
        return list(found.values())

    def has_sources(self) -> bool:
        """Whether there is anything that could be written."""
        return bool(self._sources) and not all(s.is_broken for s in self._sources or ())

    def find_sources(self) -> bool:
        """The same, of a script that was through before its first sample as well."""
        if self._sources is None and getattr(sys.modules.get(MODULE), "_world", None):
            self._find_sources()
        return self.has_sources()

    def _find_sources(self) -> None:
        """For recorders of backends that came into use."""
        self._is_group_new = False
        self._sources = find_sources(self._sources or (), backends_in_use(sys.modules.get(MODULE)))
        members = {**self._members, **_members_by_name()}
        self._members = dict(list(members.items())[-_MAX_GROUPS:])

    def is_ring_due(self) -> bool:
        """Whether the ring should be written now, by itself."""
        if not self._sources:
            return False
        now = time.monotonic()
        if self._needs_names and now - self._names_at >= _NAMES_EVERY_S:
            return True
        if self._doubts > self._doubts_of_ring:  # once for each time that it makes no progress
            return now - self._ring_at >= max(_DOUBT_S, self._ring_cost_s / RING_SHARE / 4)
        every_s = RING_EVERY_S
        while every_s * 1.25 < min(self._ring_cost_s / RING_SHARE, _SELDOM_S):
            every_s *= 2
        if self._rhythm.is_calm:
            while every_s < CALM_EVERY_S and 2 * every_s * self._rhythm.per_s <= self._ring_entries:
                every_s *= 2
        if self._moves == self._moves_of_ring or now - self._ring_at < every_s / 2:
            return False
        return int(time.time() / every_s) != int(self._ring_wall_s / every_s)

    def _has_groups(self) -> bool:
        """Whether torch.distributed has a process group.  Holds none of them: the last reference destroys a group."""
        c10d = sys.modules.get(MODULE)
        group_map = getattr(getattr(c10d, "_world", None), "pg_map", None)
        number = len(group_map) if group_map is not None else 0
        if number != self._num_groups:
            self._num_groups, self._is_group_new = number, True
            if self._sources:
                for source in self._sources:
                    for group in source.groups.values():
                        group.members = ""
        self.has_groups = number > 0
        return self.has_groups

    def _sample(self, source: TorchRecorder, now_s: float, found: dict[str, GroupCounters]) -> None:
        newest: dict[str, int] = {}
        status, living = source.status(), _living()
        last = max(map(_order, status), default=0)
        for number, counts in status.items():
            named = source.known.get(number)
            if named is None:
                is_last = _order(number) == last and all(_order(n) < last for n in source.known)
                if not is_last or self._num_groups != 1 or len(living) != 1:
                    self._needs_names = True
                    continue
                named = (living[0], "default_pg")  # a group that is there alone is the default one
            name = named[0]
            if living and name not in living:
                continue  # torch's recorder tells of groups that are gone as well
            group = source.groups.get(number)
            if name in found and name not in newest:
                name += ":cpu"  # a group with a backend for each kind of device
            if group is None or group.name != name:
                group = source.groups[number] = GroupCounters(name)
            group.label = named[1]
            if group.update(now_s, *counts):
                self._moves += 1
            elif source.notes_late and group.pending_s is not None and now_s - (group.moved_s or now_s) >= _DOUBT_S:
                self._doubts = self._moves
            if not group.members:
                group.members = _members(named[0])
            if _order(number) >= newest.get(name, -1):  # a name is used again after its group was destroyed
                newest[name] = _order(number)
                found[name] = group

    def _note_problem(self, problem: str) -> None:
        if problem not in self.problems and len(self.problems) < 8:
            self.problems.append(problem[:300])

    # -- the other thread

    def write_ring(self) -> None:
        """Write the rings whole or not at all, and learn the groups' names from them."""
        began_s, began, began_wall_s = time.thread_time(), time.monotonic(), time.time()
        moves, doubts = self._moves, self._doubts
        used: list[tuple[TorchRecorder, bytes, float]] = []
        for source in self._sources or ():
            if source.is_broken:
                continue
            data, read_s = source.read_ring(), time.time()
            source.is_used = _HAS_ENTRIES in data
            if source.is_used:
                used.append((source, data, read_s))
                if self._needs_names or not source.known:
                    source.known = {**source.known, **names_in_ring(data)}  # the heartbeat's thread reads it
                if source.notes_late and doubts == moves:
                    _settle(source.groups, data)
        beside = self._notes()
        if not used and EXCHANGES in beside:  # a job of sends and receives alone, of which Gloo records none
            used = [(source, source.read_ring(), time.time()) for source in self._sources or () if not source.is_broken]
            del used[:-1]
        places = files_of(source for source, _, _ in used)
        for source, data, read_s in used:
            _put(f"{self._folder}/{names.RINGS[places[source.backend]]}", _with_notes(data, beside, read_s))
            self.ring_s = time.time()
        self._moves_of_ring, self._doubts_of_ring = moves, doubts
        self._ring_at = self._names_at = began
        self._ring_wall_s = began_wall_s
        self._ring_entries = sum(data.count(_ONE_ENTRY) for _, data, _ in used)
        self._ring_cost_s = max(time.thread_time() - began_s, self._ring_cost_s / 2)

    def made(self) -> list[GroupCounters]:
        """How many collectives the rank made in each group of which its rings tell that, the groups of most first."""
        living = [source for source in self._sources or () if not source.is_broken]
        if not living:
            return []  # an import that is the first of its module at exit can undo how a KeyboardInterrupt ends Python

        from json import loads

        from allready.live.beacon.made import made_in  # no start needs it

        found = made_in((source.backend, loads(source.read_ring()).get("entries", ())) for source in living)
        for name, group in found.items():
            group.members = compressed(self._members.get(name.removesuffix(":cpu"), ()))
        return sorted(found.values(), key=lambda group: -group.enqueued)

    def write_dump(self) -> None:
        used = [s for s in self._sources or () if s.is_used]
        places = files_of(used)
        for source in used:
            if source.dump is None:
                continue
            hidden = _HiddenCompiler.put_in_place()
            try:
                data = source.read_dump()
            finally:
                _HiddenCompiler.take_away(hidden)
            _put(f"{self._folder}/{names.DUMPS[places[source.backend]]}", data + _pickled(self._notes()))

    def _notes(self) -> "dict[str, object]":
        """What is written beside a recorder's entries."""
        calls, exchanges = self._arguments.noted(), self._arguments.exchanges.noted(self._members)
        found = {ARGUMENTS: [list(call) for call in calls], MEMBERS: self._members, EXCHANGES: exchanges}
        return {key: value for key, value in found.items() if value}

    def failed(self, error: BaseException) -> None:
        """Writing failed; reported, and tried again later."""
        self._ring_at = self._names_at = time.monotonic()
        self._note_problem(f"the flight recorder's ring cannot be written: {type(error).__name__}: {error}")


class _HiddenCompiler(set[str]):
    """In place of `torch._lazy_modules` while stacks are written: torch asks for `torch._inductor` to name frames of
    compiled code, and where it has not been imported this would, in this thread: seconds in which the script's own
    thread gets the GIL now and then, and a crash when the process ends meanwhile.  Other threads find what is there.
    """

    ident = 0

    def __contains__(self, name: object) -> bool:
        return not (name == "_inductor" and get_ident() == self.ident) and set.__contains__(self, name)

    @classmethod
    def put_in_place(cls) -> "set[str] | None":
        """What was there before; None where torch has nothing of the kind, and imports as it likes."""
        torch = sys.modules.get("torch")
        known = getattr(torch, "_lazy_modules", None)
        if torch is None or type(known) is not set or "_inductor" in vars(torch):
            return None
        hidden = cls(known)
        hidden.ident = get_ident()
        torch._lazy_modules = hidden  # type: ignore[attr-defined]  # noqa: SLF001
        return known

    @classmethod
    def take_away(cls, known: "set[str] | None") -> None:
        torch = sys.modules.get("torch")
        if known is not None and isinstance(getattr(torch, "_lazy_modules", None), cls):
            torch._lazy_modules = known  # type: ignore[union-attr]  # noqa: SLF001


def names_in_ring(ring: bytes) -> dict[str, tuple[str, str]]:
    """The recorder's number of a group -> its name and description, from the entries; newest entries win."""
    from json import JSONDecodeError, JSONDecoder, loads

    found: dict[str, tuple[str, str]] = {}
    decoder = JSONDecoder()
    seen: set[bytes] = set()
    at = ring.find(_HAS_ENTRIES)
    while at >= 0 and len(seen) < _MAX_NAMES:
        piece = ring[at + len(_HAS_ENTRIES) : ring.find(b"]", at) + 1]
        if piece not in seen and len(piece) < _LONGEST_NAMES:
            seen.add(piece)
            number, _, rest = piece.decode("utf-8", "replace").partition(",")
            if rest.startswith('"process_group":['):
                try:
                    pair, _ = decoder.raw_decode(rest, rest.index("["))
                except JSONDecodeError:  # a "]" in the name
                    pair = None
                if isinstance(pair, list) and len(pair) == 2:
                    found[number.strip()] = (str(pair[0]), _label(pair[1]))
        at = ring.find(_HAS_ENTRIES, at + 1)
    if not found and seen:  # the same in another order, or with odd names
        for entry in loads(ring).get("entries", []):
            pair = entry.get("process_group")
            if isinstance(pair, list) and len(pair) == 2:
                found[str(entry.get("pg_id"))] = (str(pair[0]), _label(pair[1]))
    return found


def _with_notes(ring: bytes, notes: "Mapping[str, object]", taken_s: float) -> bytes:
    """The ring's JSON with its time and the notes beside the entries."""
    whole = ring.rstrip()
    if not whole.endswith(b"}"):
        return ring
    from json import dumps

    return b"%s,%s" % (whole[:-1], dumps({TAKEN: int(taken_s * 1e9), **notes}, separators=(",", ":")).encode()[1:])


def _pickled(notes: "Mapping[str, object]") -> bytes:
    """The same after a pickle, as one of its own: who loads one object sees what torch wrote."""
    if not notes:
        return b""
    from pickle import dumps

    return dumps(notes, protocol=2)


def _settle(groups: "Mapping[str, GroupCounters]", ring: bytes) -> None:
    """Up to which operation all of a group have completed: every entry is retired when it has."""
    from json import loads

    newest: dict[str, int] = {}
    pending: dict[str, int] = {}
    for entry in loads(ring).get("entries", ()):
        number, seq = str(entry.get("pg_id")), entry.get("collective_seq_id")
        if not isinstance(seq, int) or (entry.get("is_p2p") and not entry.get("retired")):
            newest[number] = -1  # it counts by another rule
        elif newest.get(number) != -1:
            newest[number] = max(seq, newest.get(number, 0))
            if not entry.get("retired"):
                pending[number] = min(seq, pending.get(number, seq))
    for number, seq in newest.items():
        group = groups.get(number)
        if group is not None and seq == group.enqueued:
            group.settled = pending.get(number, seq + 1) - 1


def _label(entry: object) -> str:
    return "" if entry == "undefined" else str(entry)


def _order(number: str) -> int:
    """Groups that are made later have higher numbers."""
    return int(number) if number.isdigit() else 0


def _living() -> list[str]:
    """Names of the groups that are there; empty where torch does not tell them."""
    world = getattr(sys.modules.get(MODULE), "_world", None)
    return [str(name) for name in list(getattr(world, "pg_names", {}).values())]


def _members(name: str) -> str:
    """Global ranks of the group with this name in the group's order, compressed; "" when torch does not report them."""
    return next((compressed(_in_order(ranks)) for known, ranks in _ranks_by_name() if known == name), "")


def _members_by_name() -> "dict[str, list[int]]":
    """The same of all groups that are not too large; the recorder of Gloo writes down none."""
    return {name: _in_order(ranks) for name, ranks in _ranks_by_name()[-_MAX_GROUPS:] if len(ranks) <= MAX_MEMBERS}


def _ranks_by_name() -> "list[tuple[str, dict[int, int]]]":
    """Name of a group, and global rank -> rank in the group."""
    world = getattr(sys.modules.get(MODULE), "_world", None)
    ranks_of = getattr(world, "pg_group_ranks", None) or {}
    named = ((str(name), ranks_of.get(group)) for group, name in list(getattr(world, "pg_names", {}).items()))
    return [(name, ranks) for name, ranks in named if isinstance(ranks, dict)]


def _in_order(ranks: "dict[int, int]") -> "list[int]":
    return sorted(ranks, key=ranks.__getitem__)


def _put(path: str, data: bytes) -> None:
    """Whole or not at all: a reader sees the file before or the file after."""
    part = path + ".part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)
    os.replace(part, path)  # noqa: PTH105
