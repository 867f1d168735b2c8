from allready.model import RollCall, Severity
from tests.fleets import check, claim, fleet


def roll(*arrivals: tuple[float, float]) -> RollCall:
    """(arrival_s, waited_s) of each node."""
    n = len(arrivals)
    return RollCall(
        num_nodes=n, claims=tuple(claim(r, n, arrival_s=a, waited_s=w) for r, (a, w) in enumerate(arrivals))
    )


def test_says_how_late_a_node_came() -> None:
    [hit] = check("JOB002", fleet(3, roll=roll((0.0, 0.0), (1.0, 0.5), (31.0, 0.2)))).hits
    assert hit.culprits.nodes == (2,)
    assert hit.values["late_s"] == "31"
    assert hit.severity is None


def test_warns_above_the_shortest_time_out() -> None:
    [hit] = check("JOB002", fleet(2, roll=roll((0.0, 0.0), (75.0, 0.0)))).hits
    assert hit.severity is Severity.WARNING


def test_names_node_0_when_the_others_had_been_waiting_for_it() -> None:
    [hit] = check("JOB002", fleet(3, roll=roll((0.0, 0.0), (0.2, 40.0), (0.3, 39.0)))).hits
    assert hit.culprits.nodes == (0,)
    assert hit.values["first"] == "1 (gpu1)"


def test_a_node_that_waited_itself_is_not_late() -> None:
    assert check("JOB002", fleet(2, roll=roll((0.0, 0.0), (30.0, 29.5)))).state == "clear"


def test_commands_typed_one_after_the_other_are_not_late() -> None:
    assert check("JOB002", fleet(3, roll=roll((0.0, 0.0), (4.0, 0.0), (9.0, 0.0)))).state == "clear"


def test_a_refused_node_does_not_count() -> None:
    claims = (claim(0, 2), claim(1, 2), claim(1, 2, arrival_s=50.0, pid=9, refused="duplicate_rank"))
    assert check("JOB002", fleet(2, roll=RollCall(num_nodes=2, claims=claims))).state == "clear"


def test_is_not_checked_without_a_roll_call() -> None:
    assert check("JOB002", fleet(2, roll=None)).state == "not_checked"
