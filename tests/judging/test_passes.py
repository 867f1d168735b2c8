"""When rates are known, and what counts of several passes."""

import random

from allready.judging.passes import KNOWN, MAX_PASSES, is_known, kept, together


def test_of_two_the_better_counts_and_of_more_the_mean_of_the_better_half() -> None:
    assert kept([3.0]) == 3.0
    assert kept([2.0, 3.0]) == 3.0
    assert kept([1.0, 4.0, 2.0]) == 3.0
    assert kept([9.0, 1.0, 2.0, 8.0]) == 8.5
    assert together([{"a": 1.0, "b": 2.0}, {"a": 3.0}]) == {"a": 3.0, "b": 2.0}


def test_a_few_rates_need_a_second_pass_and_many_alike_ones_do_not() -> None:
    assert not is_known([])
    assert not is_known([{0: 1.0, 1: 1.0}])
    assert is_known([dict.fromkeys(range(56), 1.0)])
    assert not is_known([dict.fromkeys(range(56), 1.0) | {3: 0.8}])


def test_a_rate_that_is_slow_every_time_is_known_and_noise_is_not() -> None:
    slow = {0: 1.0, 1: 1.0, 2: 0.5, 3: 1.0}
    assert is_known([slow, slow])
    chance = random.Random(1)
    noisy = [{m: 1 + chance.uniform(-0.2, 0.2) for m in range(8)} for _ in range(MAX_PASSES)]
    assert not any(is_known(noisy[:count]) for count in range(1, MAX_PASSES))
    assert is_known(noisy)  # more passes are not worth their time
    little = [{m: 1 + chance.uniform(-KNOWN / 2, KNOWN / 2) for m in range(8)} for _ in range(2)]
    assert is_known(little)


def test_what_fails_now_and_then_is_left_to_its_caller() -> None:
    assert is_known([{0: 1.0}, {}])
    assert is_known([{0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}, {0: 1.0}])
