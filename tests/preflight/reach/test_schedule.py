import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allready.preflight.reach.schedule import Schedule, make_schedule


def assert_rounds_are_disjoint_and_agreed(schedule: Schedule) -> None:
    seen: set[tuple[int, int]] = set()
    partners = schedule.partners()
    for i, pairs in enumerate(schedule.rounds):
        members = [r for pair in pairs for r in pair]
        assert len(members) == len(set(members)), "a node has two partners in one round"
        assert set(members) <= set(schedule.nodes)
        for a, b in pairs:
            assert a < b
            assert (a, b) not in seen, "a pair meets twice"
            seen.add((a, b))
            assert (partners[a][i], partners[b][i]) == (b, a)
        for r in set(schedule.nodes) - set(members):
            assert partners[r][i] is None


@given(st.sets(st.integers(0, 5000), max_size=40))
def test_every_pair_of_any_set_of_nodes_meets_exactly_once(nodes: set[int]) -> None:
    schedule = make_schedule(sorted(nodes))
    assert_rounds_are_disjoint_and_agreed(schedule)
    n = len(nodes)
    assert schedule.num_pairs == schedule.num_pairs_all == n * (n - 1) // 2
    assert not schedule.is_sample
    assert len(schedule.rounds) == (0 if n < 2 else n - 1 + n % 2)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 300), st.integers(1, 40), st.text(max_size=5))
def test_a_sample_keeps_to_its_rounds_and_never_repeats_a_pair(num_nodes: int, max_rounds: int, seed: str) -> None:
    schedule = make_schedule(range(num_nodes), max_rounds=max_rounds, seed=seed)
    assert_rounds_are_disjoint_and_agreed(schedule)
    assert len(schedule.rounds) <= max_rounds
    assert schedule.is_sample == (schedule.num_pairs < schedule.num_pairs_all)


def test_a_sample_holds_all_ring_neighbours_at_powers_of_two() -> None:
    n = 1001  # odd: cycles of odd length
    met = {pair for pairs in make_schedule(range(n), max_rounds=64, seed="job").rounds for pair in pairs}
    for distance in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        for a in range(n):
            b = (a + distance) % n
            assert (min(a, b), max(a, b)) in met


def test_the_same_seed_gives_the_same_sample_and_another_seed_another() -> None:
    one, same, other = (make_schedule(range(200), max_rounds=40, seed=s) for s in ("a", "a", "b"))
    assert one == same
    assert one != other


@pytest.mark.thorough
def test_4096_nodes_cost_each_node_at_most_64_partners() -> None:
    schedule = make_schedule(range(4096), max_rounds=64, seed="job")
    assert_rounds_are_disjoint_and_agreed(schedule)
    assert len(schedule.rounds) == 64
    per_node = [sum(p is not None for p in column) for column in schedule.partners().values()]
    assert max(per_node) <= 64
    assert min(per_node) >= 58
    assert 0.9 * 64 * 2048 < schedule.num_pairs < schedule.num_pairs_all


def test_one_node_alone_has_no_rounds() -> None:
    assert make_schedule([7]).rounds == ()
    assert make_schedule([]).partners() == {}
