from msgspec.structs import replace

from allready.model import Caller, RollCall
from tests.fleets import check, fleet, healthy_roll


def with_callers(*callers: Caller) -> RollCall:
    return replace(healthy_roll(2), callers=callers)


def test_tells_who_called_and_what_it_said() -> None:
    [hit] = check(
        "PRT008", fleet(2, roll=with_callers(Caller(kind="stranger", address="10.0.0.9", detail="said b'GET'")))
    ).hits
    assert hit.values["callers"] == "10.0.0.9 (said b'GET')"
    assert not hit.culprits


def test_counts_many_and_shows_a_few() -> None:
    many = (Caller(kind="stranger", address=f"10.0.1.{i}") for i in range(30))
    [hit] = check("PRT008", fleet(2, roll=with_callers(*many))).hits
    assert hit.values["num"] == 30
    assert str(hit.values["callers"]).endswith("10.0.1.3, …")


def test_a_node_of_ours_that_calls_is_no_stranger() -> None:
    ours = Caller(kind="datagram", address="10.0.0.2", node_rank=1, hears_us=True)
    assert check("PRT008", fleet(2, roll=with_callers(ours))).state == "clear"


def test_is_clear_when_nobody_else_called() -> None:
    assert check("PRT008", fleet(2)).state == "clear"


def test_is_not_checked_without_a_roll_call() -> None:
    assert check("PRT008", fleet(2, roll=None)).state == "not_checked"
