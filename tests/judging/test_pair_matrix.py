"""Hot rows, columns and cells of a matrix of pairs; and noise, which names no rank."""

import random
from collections.abc import Mapping
from itertools import permutations

import pytest

from allready.judging.bisection import halves, num_levels, search
from allready.judging.pair_matrix import MatrixReading, by_rail, read_matrix, suspects
from allready.judging.passes import MAX_PASSES, is_known, together
from allready.model import GroupPoint, PairPoint


def matrix(
    n: int,
    members: Mapping[int, float] = {},
    senders: Mapping[int, float] = {},
    receivers: Mapping[int, float] = {},
    links: Mapping[tuple[int, int], float | None] = {},
    noise: float = 0.0,
    seed: int = 0,
    most: int = 1,
) -> MatrixReading:
    """`most`: passes, as long as rates are not known."""
    chance = random.Random(seed)
    passes: list[dict[tuple[int, int], float]] = []
    while len(passes) < most and not is_known(passes):
        rates = {}
        for a, b in permutations(range(n), 2):
            link = links.get((min(a, b), max(a, b)), 1.0)
            share = min(members.get(a, 1.0), members.get(b, 1.0), senders.get(a, 1.0), receivers.get(b, 1.0))
            if link is not None:
                rates[a, b] = 10.0 * share * link * (1 + chance.uniform(-noise, noise))
        passes.append(rates)
    found = together(passes)
    pairs = permutations(range(n), 2)
    return read_matrix(PairPoint(sender=a, receiver=b, size_bytes=1, gb_per_s=found.get((a, b))) for a, b in pairs)


def test_a_member_at_any_loss_is_named_among_four_and_among_many_with_and_without_noise() -> None:
    wrong = []
    for n in (4, 8, 16):
        for share in (0.8, 0.5, 0.1):
            for noise, seed in ((0.0, 0), *((0.1 if n > 4 else 0.03, s) for s in range(10))):
                found = matrix(n, members={2: share}, noise=noise, seed=seed)
                if list(found.members) != [2] or found.senders or found.receivers or found.links:
                    wrong.append((n, share, noise, seed, found))
    assert wrong == []


def test_two_slow_members_of_eight_are_both_named() -> None:
    found = matrix(8, members={1: 0.5, 6: 0.3}, noise=0.05)
    assert (set(found.members), found.links) == ({1, 6}, {})


def test_a_row_is_a_sender_a_column_a_receiver_and_a_cell_a_link() -> None:
    assert set(matrix(8, senders={3: 0.6}, noise=0.05).senders) == {3}
    assert set(matrix(8, receivers={4: 0.6}, noise=0.05).receivers) == {4}
    found = matrix(8, links={(2, 5): 0.4}, noise=0.1)
    assert (set(found.links), found.members, found.senders, found.receivers) == ({(2, 5)}, {}, {}, {})


def test_noise_of_ten_percent_names_nobody_in_two_hundred_matrices() -> None:
    named = [(n, seed) for n in (4, 8) for seed in range(100) if not matrix(n, noise=0.1, seed=seed).is_clear]
    assert named == []


@pytest.mark.thorough
def test_cells_that_differ_wildly_hardly_ever_name_anybody() -> None:
    for n, noise in ((4, 0.5), (8, 0.5), (8, 0.8)):
        assert sum(not matrix(n, noise=noise, seed=seed).is_clear for seed in range(100)) <= 10, (n, noise)


def test_half_of_the_members_few_members_and_nothing_name_nobody() -> None:
    assert matrix(4, members={0: 0.5, 1: 0.5}).is_clear
    assert matrix(3, members={0: 0.5}).is_clear
    assert read_matrix(()).is_clear


def test_a_blocked_pair_is_kept_and_the_others_are_read() -> None:
    found = matrix(8, members={7: 0.5}, links={(0, 1): None}, noise=0.05)
    assert (found.failed, set(found.members)) == (((0, 1),), {7})


def bisected(n: int, shares: Mapping[int, float], noise: float = 0.0, seed: int = 0) -> tuple[dict[int, float], int]:
    """Culprits and rounds of a search among `n` members; a group is as fast as its slowest member."""
    chance = random.Random(seed)
    rounds: list[list[GroupPoint]] = []
    members = list(range(n))
    while groups := search(members, rounds).groups:
        flat = [m for g in groups for m in g]
        assert len(flat) == len(set(flat)), "groups of a round share a member"
        assert len(rounds) < 12
        passes: list[dict[tuple[int, ...], float]] = []
        while not is_known(passes):
            slowest = {g: 10 * min(shares.get(m, 1.0) for m in g) for g in groups}
            passes.append({g: rate * (1 + chance.uniform(-noise, noise)) for g, rate in slowest.items()})
        rates = together(passes)
        rounds.append([GroupPoint(round=len(rounds), members=g, size_bytes=1, gb_per_s=rates[g]) for g in groups])
    return search(members, rounds).culprits, len(rounds)


@pytest.mark.thorough
def test_halving_finds_every_culprit_in_log2_rounds() -> None:
    wrong = []
    for n, log2 in ((4, 2), (8, 3), (16, 4), (64, 6), (1024, 10)):
        for share in (0.8, 0.5, 0.1):
            for culprit in (0, n // 2, n - 1):
                found, num_rounds = bisected(n, {culprit: share})
                if list(found) != [culprit] or num_rounds > log2:
                    wrong.append((n, share, culprit, found, num_rounds))
    minority, _ = bisected(8, {1: 0.5, 2: 0.3, 6: 0.5}, noise=0.02)  # in three of four pairs
    assert set(minority) == {1, 2, 6}
    several, num_rounds = bisected(64, {3: 0.5, 4: 0.8, 40: 0.1, 63: 0.5})
    assert (set(several), num_rounds <= 7) == ({3, 4, 40, 63}, True)
    assert wrong == []


def test_halving_names_nobody_in_noise_among_few_or_when_all_are_slow() -> None:
    named = [seed for seed in range(200) if bisected(8, {}, noise=0.05, seed=seed)[0]]
    assert named == []
    assert bisected(3, {0: 0.1}) == ({}, 0)
    assert bisected(8, dict.fromkeys(range(8), 0.3))[0] == {}


def test_one_pair_that_is_faster_than_all_others_accuses_nobody() -> None:
    rounds = [[GroupPoint(round=0, members=g, size_bytes=1, gb_per_s=1.0) for g in halves(range(8), 1)]]
    rates = {(0, 1): 1.0, (2, 3): 1.0, (4, 5): 2.0, (6, 7): 1.0}
    rounds.append([GroupPoint(round=1, members=g, size_bytes=1, gb_per_s=rate) for g, rate in rates.items()])
    while groups := search(range(8), rounds).groups:
        rounds.append([GroupPoint(round=len(rounds), members=g, size_bytes=1, gb_per_s=1.0) for g in groups])
    assert search(range(8), rounds).culprits == {}


def test_the_partner_of_a_culprit_needs_a_slow_pair_of_its_own() -> None:
    def measured(number: int, rates: Mapping[tuple[int, ...], float]) -> list[GroupPoint]:
        return [GroupPoint(round=number, members=g, size_bytes=1, gb_per_s=rate) for g, rate in rates.items()]

    rounds = [
        measured(0, {(0, 1, 2, 3): 8.0, (4, 5, 6, 7): 10.0}),
        measured(1, {(0, 1): 8.0, (2, 3): 10.4, (4, 5): 9.6, (6, 7): 10.3}),
    ]
    assert search(range(8), rounds).groups == ((0, 2), (1, 3))
    noisy = search(range(8), [*rounds, measured(2, {(0, 2): 8.9, (1, 3): 8.0})])
    assert list(noisy.culprits) == [1]
    both = search(range(8), [*rounds, measured(2, {(0, 2): 8.2, (1, 3): 8.0})])
    assert list(both.culprits) == [0, 1]


def test_a_member_that_is_somewhat_slow_does_not_make_links_of_its_own_bad_ones() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        members = {m: chance.uniform(0.9, 1.1) for m in range(8)} | {1: 0.8}
        assert matrix(8, members=members, noise=0.02, seed=seed).links == {}, seed


def test_halves_never_leave_a_member_alone() -> None:
    for n in range(4, 70):
        for level in range(1, num_levels(range(n)) + 1):
            groups = halves(range(n), level)
            assert [m for g in groups for m in g] == list(range(n))
            assert min(map(len, groups)) >= 2
        assert max(map(len, halves(range(n), num_levels(range(n))))) <= 3, n


def differing(seed: int) -> dict[int, float]:
    """Eight links that differ by a standard deviation of 10 %, for good."""
    chance = random.Random(seed)
    return {m: chance.gauss(1, 0.1) for m in range(8)}


@pytest.mark.slow
def test_how_often_eight_members_are_judged_wrongly() -> None:
    """The numbers of docs/bench.md."""
    seeds = range(100)
    assert sum(bool(bisected(8, {}, noise=0.1, seed=seed)[0]) for seed in seeds) == 0
    assert sum(not matrix(8, noise=0.1, seed=s, most=MAX_PASSES).is_clear for s in seeds) == 0
    assert sum(list(matrix(8, members={1: 0.8}, noise=0.02, seed=s).members) == [1] for s in seeds) == 100
    assert (
        sum(list(matrix(8, members={1: 0.8}, noise=0.1, seed=s, most=MAX_PASSES).members) == [1] for s in seeds) >= 98
    )
    assert sum(list(bisected(8, {1: 0.8}, noise=0.02, seed=s)[0]) == [1] for s in seeds) == 100
    assert sum(list(bisected(8, {1: 0.8}, noise=0.05, seed=s)[0]) == [1] for s in seeds) >= 98
    assert sum(list(bisected(8, {1: 0.8}, noise=0.1, seed=s)[0]) == [1] for s in seeds) >= 92
    assert not any(set(bisected(8, {1: 0.8}, noise=0.1, seed=s)[0]) - {1} for s in seeds)
    assert sum(not matrix(8, members=differing(s), seed=s).is_clear for s in seeds) <= 33
    assert sum(bool(bisected(8, differing(s), seed=s)[0]) for s in seeds) <= 25


def test_a_link_at_80_percent_between_two_good_members_is_named() -> None:
    for seed in range(20):
        found = matrix(8, links={(2, 5): 0.8}, noise=0.02, seed=seed)
        assert (set(found.links), found.members, found.senders, found.receivers) == ({(2, 5)}, {}, {}, {})


def test_what_a_reading_rests_on_is_measured_again() -> None:
    everyone = list(permutations(range(8), 2))
    assert suspects(matrix(8, members={3: 0.5}), everyone) == tuple((min(m, 3), max(m, 3)) for m in range(8) if m != 3)
    assert suspects(matrix(8, links={(2, 5): 0.5}), everyone) == ((2, 5),)
    assert suspects(matrix(8), everyone) == ()


def test_each_network_has_a_matrix_of_its_own() -> None:
    points = [
        PairPoint(sender=a, receiver=b, size_bytes=1, gb_per_s=10.0 if rail == "eth0" else 1.0, rail=rail)
        for rail in ("eth0", "eth1")
        for a, b in permutations(range(4), 2)
    ]
    assert {rail: len(of) for rail, of in by_rail(points).items()} == {"eth0": 12, "eth1": 12}
    assert all(read_matrix(of).is_clear for of in by_rail(points).values())
