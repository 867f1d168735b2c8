from allready.evidence.join.zones import in_one_zone
from tests.judging.made import death, event, reading

HOUR_S = 3600.0


def log(node: str, begin_s: float, source: str | None = None) -> object:
    name = source or f"out.{node}.log"
    return reading(
        name,
        begin_s,
        begin_s + 600,
        event("torch.watchdog_timeout", node=node, time_s=begin_s + 600, source=name),
        deaths=[death(node=node, time_s=begin_s + 300, source=name)],
    )


def times(*logs: object) -> list[float | None]:
    return [r.deaths[0].time_s for r in in_one_zone(logs)]  # type: ignore[arg-type]


def test_logs_of_two_zones_are_brought_together() -> None:
    assert times(log("node0", 0.0), log("node1", 10.0), log("node2", 5 * HOUR_S + 5)) == [300.0, 310.0, 305.0]
    assert times(log("node0", 0.0), log("node1", 10.0), log("node2", -5.5 * HOUR_S + 5)) == [300.0, 310.0, 305.0]


def test_logs_that_overlap_are_left() -> None:
    assert times(log("node0", 0.0), log("node1", 400.0)) == [300.0, 700.0]


def test_a_second_attempt_of_the_same_node_is_left() -> None:
    assert times(log("node0", 0.0), log("node0", 2 * HOUR_S, "later.log")) == [300.0, 2 * HOUR_S + 300]


def test_a_node_that_came_late_is_left() -> None:
    assert times(log("node0", 0.0), log("node1", 2 * HOUR_S + 400)) == [300.0, 2 * HOUR_S + 700]


def test_a_kernel_log_does_not_move_anything() -> None:
    old = reading("dmesg", -5 * HOUR_S, -5 * HOUR_S, event("kernel.xid_off_the_bus", node="node9", time_s=-5 * HOUR_S))
    moved = in_one_zone([log("node0", 0.0), log("node1", 1.0), old])  # type: ignore[list-item]
    assert moved[2].events[0].time_s == -5 * HOUR_S
