"""Whose sends and receives left the pattern: its own loop's, that of all others at the same line, or of the stages.

An unmatched send or receive is a disagreement of two ranks, and nothing in it shows which of both is wrong.  What
shows it is what a rank did in the iterations before while all others kept to theirs, or what the others do at the same
place of the program.  Where neither has a majority there is no stray.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.flight.groups import Group
from allready.evidence.flight.tracks import Track
from allready.evidence.operation_names import ANY
from allready.evidence.reading import Exchange, Exchanges
from allready.evidence.stacks.libraries import is_users
from allready.judging.majority import majority
from allready.judging.sequence import loop_of, numbered
from allready.judging.turns import MAX_SINCE
from allready.model import CallSite, ExchangeCall, Frame, StrayExchange, StrayProof

MAX_RANKS = 256
MAX_EARLY = 64
"""Calls of each rank among which the first difference is looked for, where no loop is known."""
MIN_ALIKE = 2
"""Ranks that must have made what one has not."""

_Value = Callable[[int, Exchange], int]
_With = Callable[[int, int], dict[str, int]]
"""What is compared of a rank's call, and the fields of the call that has it."""
Kind = tuple[str, bool, int]
"""Group, whether it sends, the other rank."""
Order = tuple["Sequence[tuple[Hashable, _Call]]", frozenset[Hashable]]
"""A rank's first calls under names that compare between ranks, and all names that it makes or owes."""


class _Call(Struct, frozen=True):
    """One call of one rank: a send or receive, or a collective with the number of what all must have in common."""

    at_ns: int
    exchange: Exchange | None = None
    collective: tuple[str, int] = ("", 0)


class _Side(Struct, frozen=True):
    """One rank's calls, and the halves that another one has made, or waits in, and it has not."""

    rank: int
    calls: tuple[_Call, ...]
    owed: frozenset[Kind]


def stray_exchange(
    groups: Sequence[tuple[Group, Mapping[int, Track]]], exchanges: Mapping[int, Exchanges]
) -> StrayExchange | None:
    """The one rank that left the pattern of its sends and receives; None where none is proven to have.

    Args:
        groups: the collectives of all ranks.
        exchanges: rank -> its sends and receives; without those of all ranks that they name, nothing is compared.
    """
    named = {call.peer for one in exchanges.values() for call in one.calls} - {-1}
    if not exchanges or len(exchanges) > MAX_RANKS or not named <= exchanges.keys():
        return None
    if any(one.is_partial for one in exchanges.values()):
        return None  # what is not known to be made may have been
    owed = _owed(exchanges)
    unmet = {*owed, *(peer for kinds in owed.values() for _, _, peer in kinds)}
    sides = [_Side(r, _merged(r, groups, one), frozenset(owed.get(r, ()))) for r, one in sorted(exchanges.items())]
    found = _left_its_loop(sides)
    if found is None and all(one.is_whole for one in exchanges.values()):
        found = _another_peer(sides) or _out_of_order(sides)
    found = found or _too_few(exchanges, owed)
    if found is None or not (found.rank in unmet or _has_another_tag(found)):
        return None
    return replace(found, met=_met(exchanges))


def _has_another_tag(found: StrayExchange) -> bool:
    """Then its halves do not meet though the numbers of both are equal."""
    return found.made is not None and found.usual is not None and found.made.tag != found.usual.tag


def _merged(rank: int, groups: Sequence[tuple[Group, Mapping[int, Track]]], own: Exchanges) -> tuple[_Call, ...]:
    """In the order of their making; collectives from before the oldest send or receive that is known are left out."""
    calls = [_Call(call.created_ns, exchange=call) for call in own.calls]
    begin = 0 if own.is_whole or not own.calls else own.calls[0].created_ns
    for group, tracks in groups:
        track = tracks.get(rank)
        created = track.ring.created_ns if track is not None else ()
        if track is None or not len(created):
            continue
        known = ((created[e], code) for e, code in zip(track.first, track.codes, strict=True) if e >= 0 and code != ANY)
        calls += [_Call(at, collective=(group.title, code)) for at, code in known if at >= begin]
    return tuple(sorted(calls, key=lambda call: call.at_ns))


def _owed(exchanges: Mapping[int, Exchanges]) -> dict[int, list[Kind]]:
    """Rank -> sends and receives of which others made more of the other half than it has made."""
    found: dict[int, list[Kind]] = {}
    take_any = {rank for rank, one in exchanges.items() if any(peer == -1 for _, _, peer in one.made)}
    for rank, one in exchanges.items():
        for (group, is_send, peer), number in one.made.items():
            other = exchanges.get(peer)
            half = (group, not is_send, rank)
            if other is not None and peer not in take_any and other.made.get(half, 0) < number:
                found.setdefault(peer, []).append(half)
    return found


def _met(exchanges: Mapping[int, Exchanges]) -> tuple[int, ...]:
    """Ranks of whose every call the other rank has made the half, with the same tag."""
    tags = {rank: _tags(one) for rank, one in exchanges.items()}

    def has_half(rank: int, kind: Kind) -> bool:
        group, is_send, peer = kind
        half = (group, not is_send, rank)
        number, others = exchanges[rank].made[kind], exchanges[peer].made.get(half, 0) if peer in exchanges else 0
        if others < number:
            return False
        mine, theirs = tags[rank].get(kind, []), tags[peer].get(half, [])
        since = max(number - len(mine), others - len(theirs))  # from this one on the tags of both are known
        return Counter(mine[since - number + len(mine) :]) <= Counter(theirs[since - others + len(theirs) :])

    return tuple(r for r, one in exchanges.items() if one.made and all(has_half(r, kind) for kind in one.made))


def _tags(one: Exchanges) -> dict[Kind, list[int]]:
    found: dict[Kind, list[int]] = {}
    for call in one.calls:
        found.setdefault((call.group, call.is_send, call.peer), []).append(call.tag)
    return found


# By the iterations before


def _left_its_loop(sides: Sequence[_Side]) -> StrayExchange | None:
    """The only one that left the loop of its calls, where all others kept to theirs; also one of two."""
    for key_of in (_with_tag, _without_tag):
        left = []
        for side in sides:
            kept = _kept(side, key_of)
            left += [kept] if isinstance(kept, StrayExchange) else []
            if kept is None or len(left) > 1:
                break
        else:
            return left[0] if left and len(sides) > 1 else None
    return None


def _kept(side: _Side, key_of: Callable[[_Call], Hashable]) -> StrayExchange | bool | None:
    """Whether its last calls are those of its loop; None without a loop, or where the call that broke it is one that
    the loop does not have at that place of the program: then the others may have left theirs out."""
    codes = numbered({0: (0, [key_of(call) for call in side.calls])})[0].known
    if loop_of(codes) is not None:
        return True
    for since in range(1, MAX_SINCE + 1):
        loop = loop_of(codes[:-since])
        if loop is None:
            continue
        at = len(codes) - since
        made, usual = side.calls[at], side.calls[at - loop.period]
        is_known = codes[at] in codes[at - loop.period : at]
        if not is_known and not (_is_same_line(made, usual) and _is_missed(side, made, usual)):
            return None
        if made.exchange is None and usual.exchange is None:
            return None  # recorders have both
        return _stray(side.rank, made.exchange, usual.exchange, StrayProof.LOOP)
    return None


def _is_same_line(made: _Call, usual: _Call) -> bool:
    a, b = made.exchange, usual.exchange
    return a is not None and b is not None and a.is_send == b.is_send and bool(a.place) and a.place == b.place


def _is_missed(side: _Side, made: _Call, usual: _Call) -> bool:
    """Whether the other rank of the usual call has made its half, or waits in it; of one that differs in its tag alone
    the numbers do not tell."""
    a, b = made.exchange, usual.exchange
    return a is None or b is None or a.peer == b.peer or (b.group, b.is_send, b.peer) in side.owed


def _with_tag(call: _Call) -> Hashable:
    one = call.exchange
    return call.collective if one is None else (one.group, one.is_send, one.peer, one.tag)


def _without_tag(call: _Call) -> Hashable:
    one = call.exchange
    return call.collective if one is None else (one.group, one.is_send, one.peer)


# By what the others do, before a loop is known


def _another_peer(sides: Sequence[_Side]) -> StrayExchange | None:
    """One that names another peer, or another tag, than all others at the same line of the program: peers are compared
    by how far they are from the rank, round about, or by their number."""
    num = 1 + max(side.rank for side in sides)
    by_rank = {side.rank: side for side in sides}
    at_line: dict[tuple[bool, tuple[CallSite, ...]], dict[int, list[Exchange]]] = {}
    for side in sides:
        for call in side.calls:
            if (one := call.exchange) is not None and one.place:
                at_line.setdefault((one.is_send, one.place), {}).setdefault(side.rank, []).append(one)
    values: tuple[tuple[_Value, _With], ...] = (
        (lambda rank, one: (one.peer - rank) % num, lambda rank, v: {"peer": (rank + v) % num}),
        (lambda _, one: one.peer, lambda _, v: {"peer": v}),
        (lambda _, one: one.tag, lambda _, v: {"tag": v}),
    )
    for of_rank in at_line.values():
        for value, usual_of in values:
            found = _odd_at(of_rank, value)
            if found is None:
                continue
            rank, made, usual = found
            meant = replace(made, **usual_of(rank, usual))
            if _surplus(by_rank, rank, made) > 0 > _surplus(by_rank, rank, meant):
                return _stray(rank, made, meant, StrayProof.RANKS)
    return None


def _surplus(sides: Mapping[int, _Side], rank: int, one: Exchange) -> int:
    """How many more calls like this one, of this tag, the rank has made than the other rank halves of them; a receive
    from any may be of either."""

    def number(side: _Side | None, wanted: tuple[str, bool, int, int]) -> int:
        made = (c.exchange for c in side.calls if c.exchange is not None) if side is not None else ()
        peers = {wanted[2], -1}
        return sum((c.group, c.is_send, wanted[2], c.tag) == wanted for c in made if c.peer in peers)

    here = number(sides[rank], (one.group, one.is_send, one.peer, one.tag))
    return here - number(sides.get(one.peer), (one.group, not one.is_send, rank, one.tag))


def _odd_at(of_rank: Mapping[int, Sequence[Exchange]], value: _Value) -> tuple[int, Exchange, int] | None:
    """The only rank whose value at one line is not the one that all others always have there, its call, and theirs."""
    of_each = {rank: frozenset(value(rank, one) for one in made) for rank, made in of_rank.items()}
    most = majority(of_each)
    if most is None or len(most.value) != 1 or len(most.odd) != 1 or len(most.members) < MIN_ALIKE:
        return None
    (odd,), usual = most.odd, next(iter(most.value))
    if len(of_rank[odd]) > 1 and usual not in of_each[odd]:
        return None  # it went on after the first: so it is meant to be, as the children of different parents are
    made = next((one for one in of_rank[odd][-MAX_SINCE:] if value(odd, one) != usual), None)
    return None if made is None else (odd, made, usual)


def _out_of_order(sides: Sequence[_Side]) -> StrayExchange | None:
    """One that is at odds with all that are at odds with any, about the order of the calls that both make.

    What the first and the last stage do not make the others do in between: only calls that both make are compared, by
    how far the other rank is away, or by its number.  A half that another rank waits for counts as one that is made.
    """
    for name in (_by_distance, _by_number):
        known = {side.rank: _ordered(side, name) for side in sides}
        at_odds: list[tuple[int, int, _Call, _Call]] = []
        odd: set[int] = set()
        for a, b in combinations(known, 2):
            first = _first_difference(known[a], known[b])
            if first is not None:
                odd = odd & {a, b} if at_odds else {a, b}
                at_odds.append((a, b, *first))
                if not odd:
                    return None
        if not at_odds:
            continue
        if len(at_odds) < MIN_ALIKE or len(odd) != 1:
            return None
        rank, (one, another, mine, theirs) = next(iter(odd)), at_odds[0]
        made, usual, other = (mine, theirs, another) if one == rank else (theirs, mine, one)
        meant = _owed_as(sides, rank, _named(other, usual, name), name)
        last = next(side.calls[-MAX_SINCE:] for side in sides if side.rank == rank)
        if all(call is not made for call in last):
            return None  # it has had another order for long, as the middle one of three stages has, and went on
        if meant is None or usual.exchange is None or not _has_passed(made, meant, known[rank][0]):
            return None
        return _stray(rank, made.exchange, replace(usual.exchange, peer=meant[2]), StrayProof.RANKS)
    return None


def _owed_as(sides: Sequence[_Side], rank: int, key: Hashable, name: Callable[[int, Kind], Hashable]) -> Kind | None:
    """Of the calls that a rank owes to others the one under this name."""
    owed = next((side.owed for side in sides if side.rank == rank), frozenset[Kind]())
    return next((kind for kind in owed if name(rank, kind) == key), None)


def _has_passed(made: _Call, meant: Kind, calls: Sequence[tuple[Hashable, _Call]]) -> bool:
    """Whether a rank that made one call in place of another has left that one out, and does not come to it later: it
    made the former in an earlier round already, both are with the same rank, or it is one that all make.

    Ranks that send first and ranks that receive first are at odds in every program that is right.
    """
    if made.exchange is None or made.exchange.peer == meant[2]:
        return True
    at = next(number for number, (_, call) in enumerate(calls) if call is made)
    return any(key == calls[at][0] for key, _ in calls[:at])


def _ordered(side: _Side, name: Callable[[int, Kind], Hashable]) -> Order:
    """Its first calls under names by which those of different ranks compare, and all names that it makes or owes."""
    calls = [(_named(side.rank, call, name), call) for call in side.calls[:MAX_EARLY]]
    owed = {name(side.rank, kind) for kind in side.owed}
    return calls, frozenset({key for key, _ in calls} | owed)


def _named(rank: int, call: _Call, name: Callable[[int, Kind], Hashable]) -> Hashable:
    one = call.exchange
    return call.collective if one is None else name(rank, (one.group, one.is_send, one.peer))


def _by_distance(rank: int, kind: Kind) -> Hashable:
    group, is_send, peer = kind
    return group, is_send, peer - rank


def _by_number(rank: int, kind: Kind) -> Hashable:
    del rank
    return kind


def _first_difference(a: Order, b: Order) -> tuple[_Call, _Call] | None:
    """Where the calls that both make first differ; None where one of both has only come less far."""
    both = a[1] & b[1]
    mine, theirs = ([(key, call) for key, call in calls if key in both] for calls, _ in (a, b))
    return next(((x, y) for (k, x), (m, y) in zip(mine, theirs, strict=False) if k != m), None)


# By their numbers, at the end


def _too_few(exchanges: Mapping[int, Exchanges], owed: Mapping[int, Sequence[Kind]]) -> StrayExchange | None:
    """The only one that made fewer of a kind of call than all others that make it, and for which another rank waits."""
    found = set()
    for name in (_by_distance, _by_number):
        made = _made_by_name(exchanges, name)
        usual_of = {key: majority(numbers) for key, numbers in made.items()}
        for rank, kind in ((rank, kind) for rank, kinds in owed.items() for kind in kinds):
            key, number = name(rank, kind), exchanges[rank].made.get(kind, 0)
            most = usual_of.get(key)
            is_alone = most is not None and most.odd == ((rank,) if rank in made[key] else ())
            # Who has made none may have another place than those that do, unless all but the two ranks do.
            least = len(exchanges) - 2 if not number and name is _by_number else MIN_ALIKE
            if is_alone and most is not None and len(most.members) >= max(MIN_ALIKE, least) and number < most.value:
                found.add((rank, kind, number, most.value))
    if len({rank for rank, *_ in found}) != 1:
        return None
    rank, (_, is_send, peer), number, usual = min(found)
    last = next((c for c in reversed(exchanges[rank].calls) if (c.is_send, c.peer) == (is_send, peer)), None)
    missing = _shown(last) if last is not None else ExchangeCall(is_send=is_send, peer=peer)
    return StrayExchange(rank=rank, usual=missing, proof=StrayProof.NUMBERS, num_made=number, num_usual=usual)


def _made_by_name(
    exchanges: Mapping[int, Exchanges], name: Callable[[int, Kind], Hashable]
) -> dict[Hashable, dict[int, int]]:
    """A kind's name -> rank -> how many calls of it that one made."""
    found: dict[Hashable, dict[int, int]] = {}
    for rank, one in exchanges.items():
        for kind, number in one.made.items():
            found.setdefault(name(rank, kind), {})[rank] = number
    return found


# What is shown


def _stray(rank: int, made: Exchange | None, usual: Exchange | None, proof: StrayProof) -> StrayExchange:
    return StrayExchange(
        rank=rank,
        made=_shown(made) if made is not None else None,
        usual=_shown(usual) if usual is not None else None,
        proof=proof,
    )


def _shown(call: Exchange) -> ExchangeCall:
    return ExchangeCall(is_send=call.is_send, peer=call.peer, tag=call.tag, site=next(_users(call.place), None))


def _users(place: Iterable[CallSite]) -> Iterator[CallSite]:
    return (s for s in place if is_users(Frame(function=s.function, file=s.file, line=s.line or 0)))
