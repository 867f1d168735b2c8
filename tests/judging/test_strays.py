"""Sends and receives between stages: who left the pattern, and what proves it."""

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from allready.evidence.reading import Exchange, Exchanges
from allready.judging import strays
from allready.judging.strays import stray_exchange
from allready.model import CallSite, StrayExchange, StrayProof
from tests.cases import cases

WORLD = 4
Call = tuple[bool, int, int, int]
"""Whether it sends, the other rank, the tag, the line of the program."""


def made(calls: Sequence[Call]) -> Exchanges:
    """Notes of one rank, as the beacon keeps them: the last ones, and the number of all."""
    rows = [
        Exchange("0", sends, peer, tag, 8, 1000 + at, (CallSite("/home/u/train.py", line, "step"),))
        for at, (sends, peer, tag, line) in enumerate(calls)
    ]
    numbers: dict[tuple[str, bool, int], int] = {}
    for row in rows:
        key = (row.group, row.is_send, row.peer)
        numbers[key] = numbers.get(key, 0) + 1
    return Exchanges(tuple(rows[-128:]), numbers)


def played(script: Callable[[int], Sequence[Call]], world: int = WORLD) -> dict[int, Exchanges]:
    """Run what each rank would call, as Gloo does: a send or receive ends when its other half has been posted."""
    scripts = {rank: list(script(rank)) for rank in range(world)}
    at = dict.fromkeys(scripts, 0)
    posted: dict[int, list[Call]] = {rank: [] for rank in scripts}
    moves = True
    while moves:
        moves = False
        for rank, calls in scripts.items():
            if at[rank] == len(calls):
                continue
            call = calls[at[rank]]
            if len(posted[rank]) == at[rank]:
                posted[rank].append(call)
                moves = True
            sends, peer, tag, _ = call
            before = sum(c[:3] == call[:3] for c in posted[rank])
            if sum(c[:3] == (not sends, rank, tag) for c in posted[peer]) >= before:
                at[rank] += 1
                moves = True
    return {rank: made(calls) for rank, calls in posted.items()}


def pipeline(
    rank: int, world: int = WORLD, rounds: int = 40, *, drops: tuple[int, int, int] = (-1, -1, -1)
) -> list[Call]:
    """Activations forth, gradients back; `drops`: rank, iteration, and which of its calls it leaves out."""
    calls: list[Call] = []
    for i in range(rounds):
        one: list[Call] = []
        one += [(False, rank - 1, 0, 11)] * (rank > 0)
        one += [(True, rank + 1, 0, 12), (False, rank + 1, 0, 13)] * (rank < world - 1)
        one += [(True, rank - 1, 0, 14)] * (rank > 0)
        if (rank, i) == drops[:2]:
            del one[drops[2]]
        calls += one
    return calls


def ring(rank: int, rounds: int, *, odd: int = -1, to: int = 0, tag: int = 0) -> list[Call]:
    """Each sends to the next and receives from the one before; `odd` sends elsewhere in its last round."""
    calls: list[Call] = []
    for i in range(rounds):
        is_odd = rank == odd and i == rounds - 1
        calls += [(True, to if is_odd else (rank + 1) % WORLD, tag if is_odd else 0, 21)]
        calls += [(False, (rank - 1) % WORLD, 0, 21)]
    return calls


def stray(exchanges: dict[int, Exchanges]) -> StrayExchange | None:
    return stray_exchange((), exchanges)


@cases("which", [0, 1, 2, 3])
def test_a_stage_that_leaves_a_call_out_of_its_loop_is_named_with_both(which: int) -> None:
    found = stray(played(lambda r: pipeline(r, drops=(1, 20, which))))
    assert found is not None
    assert (found.rank, found.proof) == (1, StrayProof.LOOP)
    assert found.made is not None
    assert found.usual is not None
    assert found.usual.site == CallSite("/home/u/train.py", 11 + which, "step")


def test_of_two_ranks_the_one_that_broke_its_own_loop_is_named() -> None:
    found = stray(played(lambda r: pipeline(r, 2, drops=(1, 20, 1)), 2))
    assert found is not None
    assert (found.rank, str(found.usual)) == (1, "send(dst=0) (/home/u/train.py:14 step)")


def test_in_the_first_iteration_the_other_stages_show_the_order() -> None:
    found = stray(played(lambda r: pipeline(r, 5, drops=(2, 0, 3)), 5))
    assert found is not None
    assert (found.rank, found.proof, str(found.usual)) == (
        2,
        StrayProof.RANKS,
        "send(dst=1) (/home/u/train.py:14 step)",
    )


def test_where_two_left_their_loops_none_is_accused() -> None:
    assert stray({r: made(ring(r, 21, odd=r if r in {1, 2} else -1, to=0)) for r in range(WORLD)}) is None


def test_another_peer_or_tag_at_the_line_of_its_loop_is_the_fault_of_who_gives_it() -> None:
    rounds = {r: made(ring(r, 21, odd=2, to=0)[: 42 if r in {2, 3} else 41]) for r in range(WORLD)}
    found = stray(rounds)
    assert found is not None
    assert (found.rank, str(found.made), str(found.usual)) == (
        2,
        "send(dst=0) (/home/u/train.py:21 step)",
        "send(dst=3) (/home/u/train.py:21 step)",
    )
    tagged = stray({r: made(ring(r, 21, odd=1, to=2, tag=7)) for r in range(WORLD)})
    assert tagged is not None
    assert (tagged.rank, str(tagged.made).partition(" (")[0]) == (1, "send(dst=2, tag=7)")


def test_in_the_first_round_the_others_show_which_peer_is_meant() -> None:
    found = stray({r: made(ring(r, 1, odd=2, to=0)) for r in range(WORLD)})
    assert found is not None
    assert (found.rank, found.proof, found.usual is not None) == (2, StrayProof.RANKS, True)


def test_of_workers_of_one_server_the_one_that_left_its_first_send_out_is_named() -> None:
    def server(rank: int) -> list[Call]:
        ask: list[Call] = [(False, w, 0, 31) for w in range(1, WORLD)] + [(True, w, 0, 32) for w in range(1, WORLD)]
        own: list[Call] = [(True, 0, 0, 33), (False, 0, 0, 34)]
        return ask if rank == 0 else own[rank == 3 :]

    found = stray(played(server))
    assert found is not None
    assert (found.rank, str(found.usual)) == (3, "send(dst=0) (/home/u/train.py:33 step)")


def test_ranks_that_send_first_beside_ranks_that_receive_first_are_no_strays() -> None:
    """Rank 4 left its first receive out: rank 2 is at odds with both of its neighbours, as it has always been."""

    def halves(rank: int) -> list[Call]:
        right: list[Call] = [(True, rank + 1, 0, 41)] * (rank < 4)
        left: list[Call] = [(False, rank - 1, 0, 42)] * (rank > 0)
        return [] if rank == 4 else right + left if rank % 2 == 0 else left + right

    found = stray(played(halves, 5))
    assert found is not None
    assert (found.rank, found.proof) == (4, StrayProof.NUMBERS)


def test_a_tree_whose_parent_forgets_a_child_does_not_accuse_the_child() -> None:
    tree: dict[int, list[Call]] = {
        0: [(False, 1, 0, 51), (False, 2, 0, 51)],
        1: [(True, 0, 0, 52)],
        2: [(True, 0, 0, 52)],
        3: [(True, 1, 0, 52)],
    }
    assert stray({rank: made(calls) for rank, calls in tree.items()}) is None


def test_who_made_one_send_fewer_than_all_others_is_named_by_the_numbers_at_the_end() -> None:
    def forth(rank: int) -> list[Call]:
        calls: list[Call] = []
        for i in range(300):
            calls += [(False, rank - 1, 0, 11)] * (rank > 0)
            calls += [(True, rank + 1, 0, 12)] * (rank < WORLD - 1 and (rank, i) != (2, 10))
        return calls

    found = stray(played(forth))
    assert found is not None
    assert (found.rank, found.proof, found.num_made, found.num_usual) == (2, StrayProof.NUMBERS, 299, 300)


def test_nothing_is_said_of_what_fits_of_two_ranks_and_without_the_notes_of_all() -> None:
    assert stray(played(pipeline)) is None
    halves = {0: made([(False, 1, 0, 11)]), 1: made([(False, 0, 0, 11)])}
    assert stray(halves) is None
    lost = played(lambda r: pipeline(r, drops=(1, 20, 3)))
    whole, lost[3] = lost[3], replace(lost[3], is_partial=True)
    assert stray(lost) is None
    assert stray(lost | {3: whole}) is not None
    del lost[3]
    assert stray(lost) is None


def test_a_child_of_another_parent_is_no_stray_where_data_is_on_its_way() -> None:
    """A tree that is right, whose link from 1 to 0 is slow: both of its ends have made their call."""
    found = tree([(False, 1, 0, 51)], [(False, 3, 0, 51), (True, 0, 0, 52)], [], [(True, 1, 0, 52), (False, 1, 0, 53)])
    assert found is None


def test_a_call_whose_half_has_another_tag_is_not_met() -> None:
    found = stray({r: made(ring(r, 21, odd=1, to=2, tag=7)) for r in range(WORLD)})
    assert found is not None
    assert found.met == (0, 3)


def test_the_time_grows_with_the_number_of_calls_and_not_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    world, num_named, by_number = 48, 0, strays._by_number

    def named(rank: int, kind: strays.Kind) -> object:
        nonlocal num_named
        num_named += 1
        return by_number(rank, kind)

    monkeypatch.setattr(strays, "_by_number", named)
    calls = {r: [(d % 2 == 0, (r + d) % world, 0, 31) for d in range(1, world)] for r in range(world)}
    assert stray({rank: made(one) for rank, one in calls.items()}) is None
    assert num_named <= 8 * world * world


def test_a_child_of_another_parent_is_no_stray_where_the_root_forgets_a_child() -> None:
    """Ranks 1 and 2 receive from 0 and rank 3 from 1, as in the rounds before."""
    found = tree(
        [(False, 1, 0, 51), (False, 2, 0, 51), (True, 3, 0, 54)],
        [(False, 3, 0, 51), (True, 0, 0, 52), (False, 0, 0, 53)],
        [(True, 0, 0, 52), (False, 0, 0, 53)],
        [(True, 1, 0, 52), (False, 1, 0, 53)],
    )
    assert found is None or found.proof is StrayProof.NUMBERS  # which counts once the rank has ended


def test_who_never_sends_to_a_rank_is_no_stray_where_that_one_receives_from_the_wrong_one() -> None:
    """Ranks 0 and 3 send to 1; it receives from 4, which has never sent to it and is through."""
    right: dict[int, list[Call]] = {0: [(True, 1, 0, 81)], 2: [], 3: [(True, 1, 0, 81)], 4: []}
    calls = {**right, 1: [(False, 0, 0, 82), (False, 4, 0, 82)]}
    assert stray({rank: made(calls[rank]) for rank in range(5)}) is None
    calls |= {2: [(True, 1, 0, 81)], 1: [(False, rank, 0, 82) for rank in (0, 2, 3, 4)]}
    found = stray({rank: made(calls[rank]) for rank in range(5)})
    assert found is not None
    assert (found.rank, found.num_made) == (4, 0)


def test_numbers_without_a_call_are_compared_and_end_nothing() -> None:
    """A file that was changed, or whose rows are none."""
    rows = played(lambda r: pipeline(r, drops=(1, 20, 1)))
    rows[2] = replace(rows[2], calls=())
    assert stray(rows) is None


def tree(*last: Sequence[Call], rounds: int = 2) -> StrayExchange | None:
    """Two rounds of a tree (0 above 1 and 2, 1 above 3) that are right, and then what is given."""
    before: list[list[Call]] = [
        [(False, 1, 0, 51), (False, 2, 0, 51), (True, 1, 0, 54), (True, 2, 0, 54)],
        [(False, 3, 0, 51), (True, 0, 0, 52), (False, 0, 0, 53), (True, 3, 0, 54)],
        [(True, 0, 0, 52), (False, 0, 0, 53)],
        [(True, 1, 0, 52), (False, 1, 0, 53)],
    ]
    return stray({rank: made([*one * rounds, *last[rank]]) for rank, one in enumerate(before)})
