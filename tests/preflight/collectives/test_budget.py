"""What fits into the sweep's time, learned from the sizes before."""

from allready.preflight.collectives.budget import SweepBudget


def test_a_size_that_would_not_end_in_time_is_left_out() -> None:
    budget = SweepBudget(total_s=10.0, size_s=1.0)
    assert budget.has_room(2**30)  # nothing is known yet
    budget.learn(2**20, 2.1, 5.0)  # 4 Mbit/s
    assert budget.predicted_s(2**21) == 4.2
    assert budget.has_room(2**21)
    assert not budget.has_room(2**22)


def test_repetitions_of_one_size_use_a_part_of_what_is_left() -> None:
    budget = SweepBudget(total_s=10.0, size_s=100.0)
    budget.learn(1024, 0.1, 2.0)
    assert budget.num_operations(0.1) == 20  # a quarter of 8 s
    budget.learn(1024, 0.1, 11.0)
    assert budget.num_operations(0.1) == 0


def test_a_healthy_network_is_measured_as_often_as_asked() -> None:
    budget = SweepBudget(total_s=10.0, size_s=1.0)
    budget.learn(2**24, 0.01, 1.0)
    assert budget.num_operations(0.01) == 100
    assert not budget.is_slow(0.01)


def test_one_operation_that_takes_long_is_measurement_enough() -> None:
    assert SweepBudget(total_s=10.0, size_s=1.0).is_slow(0.6)
