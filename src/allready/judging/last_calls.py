"""The calls in which ranks ended, where their rings do not hold them: by tracebacks, and by stacks of the last moment.

A process that Gloo ends (`terminate called`) writes no ring any more, and a ring without call sites does not show the
line of the program.  The traceback of an exception and the stack of a crash show both of the last call.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.flight.groups import Group
from allready.evidence.flight.tracks import Track, operation_at
from allready.evidence.stacks.meaning import library_call
from allready.judging.flight_calls import calls_of, recorded
from allready.judging.group_calls import kind_of
from allready.judging.majority import is_tie, majority
from allready.judging.sequence import codes_before, out_of_turn
from allready.judging.siblings import Joined, call_key, patterns
from allready.model import CallSite, Mismatch, Operation, ProcessStack, Recorder, RunEvidence
from allready.patterns import compiled

SIZES = ("op.preamble.length <= op.nbytes", "message truncated", "size mismatch", "received data size", "nbytes")
"""What libraries say when a peer's operation was of another size."""

RECEIVES = frozenset({"recv", "irecv", "batch_isend_irecv"})
P2P = RECEIVES | {"send", "isend"}
"""Calls between two ranks."""

TOO_LONG = r"op\.preamble\.length <= op\.nbytes\.?\s*(\d{1,18}) vs (\d{1,18})"
"""Gloo's words, with the bytes that came and those that there was room for."""

MAX_AHEAD = 8
"""Calls that others may have made since, where none of those waits for all."""

MAX_BACK = 256
"""Calls before the last one among which the same line of the program is looked for."""


class LastCall(Struct, frozen=True):
    """`name`: of torch.distributed's function, "" where the frames do not show it; `site`: the line that called it."""

    name: str
    site: CallSite | None

    def may_be(self, operation: Operation) -> bool:
        """Whether the recorder writes such an operation for the function: `all_gather` for `all_gather_object`."""
        name = operation.name
        is_longer = name == "reduce" and self.name.startswith("reduce_scatter")
        return not name or not self.name or (f"{self.name}_".startswith(f"{name}_") and not is_longer)


class _Place(Struct, frozen=True):
    """One group at the number in question.

    `numbered`: ranks whose last call has this number, if it was one of this group.  `is_only`: it was.
    `world_size`: 0 where no evidence tells it.  `groups`: all of the job.  `room`: rank -> bytes that came to it, and
    those that it had room for, where others sent these under this number.
    """

    group: Group
    tracks: Mapping[int, Track]
    seq: int
    calls: Mapping[int, LastCall]
    numbered: set[int]
    is_only: bool
    world_size: int
    groups: Joined
    room: Mapping[int, tuple[int, int]] = {}

    @property
    def members(self) -> Sequence[int]:
        world = range(self.world_size) if self.group.is_world else ()  # Gloo's records do not say who is in it
        return self.group.members or world or sorted(self.tracks)

    def at(self, seq: int) -> dict[int, Operation]:
        """What members recorded under a number."""
        found = {r: operation_at(self.group, t, seq) for r, t in self.tracks.items()}
        return {r: o for r, o in found.items() if o is not None}

    def best_at(self, seq: int) -> Operation | None:
        """Of one that recorded the line of the program, if there is one."""
        return max(self.at(seq).values(), key=lambda o: bool(o.site), default=None)

    def beside(self, site: CallSite | None) -> Iterator[Operation]:
        """What groups that are alike did about then at this line of the program."""
        for pattern in patterns(self.group, self.tracks, self.groups, self.seq, (site,)):
            yield from (o for o in pattern.values() if o.site == site)

    def is_last_of(self, rank: int) -> bool:
        """Whether the rank's ring goes no further."""
        return rank not in self.tracks or self.tracks[rank].hi <= self.seq


def with_last_calls(run: RunEvidence, groups: Joined) -> RunEvidence:
    """The mismatches with what the ranks' last output adds to them, and those that rings alone do not show."""
    calls = last_calls(run)
    if not calls:
        return run
    # Who got data of another size than it had room for ended in a call of the sender's number, and so did a rank that
    # lost its peers before it had recorded anything.
    refused = refused_data(run)
    ringless = {d.rank for d in run.deaths if d.rank is not None} - {r for _, tracks in groups for r in tracks}
    first = {m.group: m for m in reversed(run.mismatches)}  # a group may have more: unmet halves of both ways
    found: dict[str, Mismatch] = {}
    used = [(group, tracks) for group, tracks in groups if tracks]
    for group, tracks in used:
        known = first.get(group.title)
        if known is not None and (known.source != Recorder.FLIGHT or known.misfits or known.kind == "peer"):
            continue
        seq = known.seq if known is not None else max(t.hi for t in tracks.values())
        numbered = refused if known is None else refused | ringless
        is_only = bool(refused) and (len(used) == 1 or known is not None)
        place = _Place(group, tracks, seq, calls, numbered, is_only, run.expected_ranks, groups)
        shown = _shown(_where_refused(place, run) if known is None else place, known)
        if shown is not None:
            found[group.title] = shown
    same = [found.pop(m.group, m) if m is first[m.group] else m for m in run.mismatches]
    return replace(run, mismatches=(*same, *found.values()))


def last_calls(run: RunEvidence) -> dict[int, LastCall]:
    """Rank -> the call of a library that it is in, or that it ended in."""
    found: dict[int, LastCall] = {}
    for stack in run.stacks:
        if stack.rank is not None and stack.role == "rank":
            call = call_of_stack(stack)
            if call.name and call.site:
                found[stack.rank] = call
    for death in run.deaths:
        if death.rank is not None and death.is_collective_error and death.site:
            before = found.get(death.rank)
            is_here = before is not None and before.site == death.site
            found[death.rank] = before if before and is_here and not death.call else LastCall(death.call, death.site)
    return found


def refused_data(run: RunEvidence) -> set[int]:
    """Ranks that ended since they got data of another size than they had room for."""
    return {
        d.rank
        for d in run.deaths
        if d.rank is not None and any(w in d.text.lower() or w in (d.last_words or "").lower() for w in SIZES)
    }


def _where_refused(place: _Place, run: RunEvidence) -> _Place:
    """The number at which others sent a rank more than it had room for, where they have gone on since: who sends a
    broadcast does not wait for those that receive it."""
    for death in run.deaths:
        stated = compiled(TOO_LONG).search(death.text)
        rank = death.rank
        call = place.calls.get(rank) if rank is not None else None
        if stated is None or call is None or rank is None:
            continue
        for seq in range(place.seq, max(0, place.seq - MAX_AHEAD), -1):
            made = {r: o for r, o in place.at(seq).items() if r != rank}
            came, room = map(int, stated.groups())
            if made and all(o.site == call.site and call.may_be(o) and o.size_bytes == came for o in made.values()):
                return replace(place, seq=seq, room={rank: (came, room)})
    return place


def _with_room(operation: Operation, bytes_of: tuple[int, int] | None) -> Operation:
    """The call as it was made by a rank that had room for less than came."""
    if bytes_of is None or not operation.num_elements:
        return operation
    came, room = bytes_of
    return replace(operation, num_elements=operation.num_elements * room // came, size_bytes=room, sizes=())


def call_of_stack(stack: ProcessStack) -> LastCall:
    """The call that a process was in; its parts are "" where the frames do not show them."""
    return LastCall(*library_call(stack))


def _shown(place: _Place, known: Mismatch | None) -> Mismatch | None:
    """What all members called under this number; None where their last output adds nothing."""
    made = known.by_rank if known is not None else place.at(place.seq)
    sited = {r: replace(o, site=_site(place, r, o)) for r, o in made.items()}
    added = dict(_added(place, sited))
    everybody = dict(sorted((sited | added).items()))
    if known is not None and not added:
        return replace(known, by_rank=everybody)
    keys = {r: (call_key(o), o.site) for r, o in everybody.items()}
    if not added or len(set(keys.values())) < 2:
        return None
    most, late = majority(keys, place.members), _out_of_turn(place, everybody)
    is_even = is_tie({r: call_key(o) for r, o in everybody.items()}, place.members)
    odd = most.odd if most is not None else late if is_even else ()
    shown = known or recorded(place.group, place.tracks).mismatch(
        kind_of(everybody.values()), place.seq, everybody, missing=()
    )
    return replace(
        shown,
        by_rank=everybody,
        odd=odd or shown.odd,
        missing=tuple(r for r in shown.missing if r not in added),
        out_of_turn=late if odd in {(), late} else shown.out_of_turn,
    )


def _site(place: _Place, rank: int, operation: Operation) -> CallSite | None:
    """The line of the program, if this is the last call of the rank."""
    call = place.calls.get(rank)
    is_it = call is not None and place.is_last_of(rank) and call.may_be(operation)
    return call.site if call is not None and is_it and not operation.site else operation.site


def _added(place: _Place, known: Mapping[int, Operation]) -> Iterator[tuple[int, Operation]]:
    """The last calls of ranks whose rings do not hold them: as others made them at these lines, now or before."""
    for rank in place.members:
        call = place.calls.get(rank)
        if call is None or rank in known or rank not in place.numbered or not place.is_last_of(rank):
            continue
        here = [o for o in known.values() if o.site == call.site and call.may_be(o)]
        if len({call_key(o) for o in here}) > 1:
            continue  # with whose arguments, the line does not show
        before = (place.best_at(seq) for seq in range(place.seq - 1, max(0, place.seq - MAX_BACK), -1))
        every = chain(here, before, place.beside(call.site))
        same = next((o for o in every if o is not None and o.site == call.site and call.may_be(o)), None)
        if same is not None:
            own = replace(same, seq=place.seq, created_s=None, started_s=None, completed_s=None)
            yield rank, _with_room(own, place.room.get(rank))
        elif place.is_only and all(o.site for o in known.values()):  # else it may be one of these
            yield rank, Operation(seq=place.seq, name=call.name, site=call.site)


def _out_of_turn(place: _Place, here: Mapping[int, Operation]) -> tuple[int, ...]:
    """The ranks that broke the loop, by operation, size and type of what they called."""
    before = codes_before(calls_of(place.tracks), place.seq)
    codes: dict[object, int] = {}
    seen: set[int] = set()
    for seq, code in zip(range(place.seq - len(before), place.seq), before.tolist(), strict=True):
        operation = place.best_at(seq) if code not in seen else None
        seen.add(code)
        if operation is not None:
            codes.setdefault(call_key(operation), code)
    unknown = max(seen, default=0) + 1
    return out_of_turn(before, {r: codes.get(call_key(o), unknown + r) for r, o in here.items()})
