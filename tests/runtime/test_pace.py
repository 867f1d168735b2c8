"""The learned deadline: made-up series of calls, healthy ones with noise and hung ones."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allready.errors import UsageError
from allready.runtime.pace import HALF_LIFE, MAX_KINDS, AdaptiveTimeout, OperationPace, Paces
from allready.runtime.repeats import Repeats

NOISE = 3.0
MAX_S = 600.0
STRICT = AdaptiveTimeout(least=timedelta(0))
"""Without the floor: only what was learned counts."""


def limit_s(pace: OperationPace, num_bytes: int, *, num_ranks: int = 4, adaptive: AdaptiveTimeout = STRICT) -> float:
    return adaptive.limit_s(pace.expected_s(num_bytes, num_ranks, after=adaptive.after), MAX_S)


@settings(max_examples=200, deadline=None)
@given(
    latency_s=st.floats(1e-6, 5.0),
    bytes_per_s=st.floats(1e5, 1e11),
    sizes=st.lists(st.integers(0, 10**7), min_size=1, max_size=4),
    calls=st.lists(st.tuples(st.integers(0, 3), st.floats(1.0, NOISE), st.integers(2, 8)), max_size=200),
)
def test_a_healthy_slow_rank_with_threefold_noise_is_never_late(
    latency_s: float, bytes_per_s: float, sizes: list[int], calls: list[tuple[int, float, int]]
) -> None:
    """Whatever the sizes and their order; the time grows with the number of ranks too."""
    pace = OperationPace()
    for which, noise, num_ranks in [*((0, 1.0, 2) for _ in range(STRICT.after)), *calls]:
        num_bytes = sizes[which % len(sizes)]
        took_s = noise * (latency_s + num_bytes / bytes_per_s) * num_ranks / 8
        if took_s < MAX_S:
            assert took_s <= limit_s(pace, num_bytes, num_ranks=num_ranks)
            pace.note(num_bytes, took_s, num_ranks)


@given(
    seen=st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e4), st.integers(1, 64)), max_size=60),
    num_bytes=st.integers(0, 10**10),
    least_s=st.floats(0, 500),
)
def test_the_limit_is_between_its_bounds_and_generous_before_enough_was_seen(
    seen: list[tuple[int, float, int]], num_bytes: int, least_s: float
) -> None:
    adaptive = AdaptiveTimeout(least=timedelta(seconds=least_s))
    pace = OperationPace()
    for one in seen:
        pace.note(*one)
    found_s = limit_s(pace, num_bytes, adaptive=adaptive)
    assert adaptive.least_s <= found_s <= MAX_S
    if len(seen) < adaptive.after:
        assert found_s == MAX_S


def test_a_hang_is_noticed_long_before_the_time_out_of_the_phase() -> None:
    pace = OperationPace()
    for _ in range(50):
        pace.note(4_000_000, 0.2, 4)
    assert limit_s(pace, 4_000_000) == pytest.approx(1.0, rel=0.1)
    assert limit_s(pace, 40_000_000) == pytest.approx(10.0, rel=0.1)  # in proportion, though never seen
    assert limit_s(pace, 1000) == pytest.approx(1.0, rel=0.1)  # a shorter one takes no longer
    assert limit_s(pace, 4_000_000, num_ranks=8) == pytest.approx(2.0, rel=0.1)
    assert limit_s(pace, 4_000_000, adaptive=AdaptiveTimeout()) == 30.0


def test_a_rare_slow_call_is_remembered_for_a_while_and_then_forgotten() -> None:
    pace = OperationPace()
    for number in range(100):
        pace.note(1000, 60.0 if number == 50 else 0.01, 4)
    assert limit_s(pace, 1000) > 250.0
    for _ in range(15 * HALF_LIFE):
        pace.note(1000, 0.01, 4)
    assert limit_s(pace, 1000) < 0.1


def test_the_memory_is_bounded() -> None:
    paces = Paces()
    for number in range(2 * MAX_KINDS):
        paces.of("training", (number,), "all_reduce")
    assert sum(len(paces.learned("training", (number,))) for number in range(2 * MAX_KINDS)) == MAX_KINDS


def test_ranks_that_merge_what_they_saw_have_the_same_deadline() -> None:
    """The one that always comes last has never waited."""
    waiting, last = OperationPace(), OperationPace()
    for _ in range(30):
        waiting.note(4_000_000, 0.5, 4)
        last.note(4_000_000, 0.01, 4)
        last.note(100, 0.002, 4)
    assert limit_s(last, 4_000_000) < 0.1 < 2.0 < limit_s(waiting, 4_000_000)
    tables = [waiting.table(), last.table()]
    for pace in (waiting, last):
        for table in tables:
            pace.merge(table)
    assert waiting.table() == last.table()
    assert limit_s(last, 4_000_000) == limit_s(waiting, 4_000_000) == pytest.approx(2.5)
    assert limit_s(waiting, 100) == pytest.approx(0.01)


def test_an_evaluation_teaches_nothing_about_training() -> None:
    paces = Paces()
    for phase, took_s in (("training", 0.01), ("evaluation", 900.0)):
        for _ in range(20):
            paces.of(phase, (), "barrier").note(0, took_s, 4)
    assert limit_s(paces.of("training", (), "barrier"), 0) == pytest.approx(0.05)
    assert limit_s(paces.of("evaluation", (), "barrier"), 0) == MAX_S


def test_the_fifth_recovery_at_the_same_step_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats()
    everybody = (0, 1, 2)
    for step in (7, 7, 7, 8, *[9] * 11):  # progress in between, then none
        repeats.note(everybody, step, "RTM005: rank 1", warn=True)
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == [
        f"recovery {n} in a row with the same ranks at step 9" for n in (5, 10)
    ]
    assert "RTM005: rank 1" in caplog.text
    assert [repeats.note(ranks, 9, "", warn=False) for ranks in ((0, 1), (0, 1), (0, 2))] == [1, 2, 1]


@pytest.mark.parametrize("wrong", [{"margin": 0.5}, {"after": 0}, {"least": timedelta(seconds=-1)}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        AdaptiveTimeout(**wrong)  # type: ignore[arg-type]
