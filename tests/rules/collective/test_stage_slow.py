from allready.judging.engine import judge
from allready.model import FaultClass, Fleet, Live
from tests.fleets import check, fleet
from tests.judging.test_rank_traffic import traffic
from tests.rules.collective.made_up import stage, state, stopped_at
from tests.rules.link.wires import DEAD

ALL = [state(r) for r in range(4)]
MOVES = {(0, 1): {"acked_per_look": 500_000}}


def hung(live: Live | None) -> Fleet:
    bad = stage("sweep", "hung", *ALL, size_bytes=2**22, iteration=0, stuck_s=20.0)
    return fleet(2, collectives=stopped_at(bad, traffic=live))


def test_data_that_moves_is_a_slow_network_and_no_hang() -> None:
    [hit] = check("COL014", hung(traffic(MOVES))).hits
    assert (hit.values["rate"], hit.culprits.nodes) == ("4 Mbit/s", ())
    assert check("COL009", hung(traffic(MOVES))).state == "clear"
    findings, _ = judge(hung(traffic(MOVES)))
    assert findings[0].fault_class is FaultClass.SLOW_COMM


def test_a_stage_in_which_nothing_moves_is_hung() -> None:
    for live in (None, traffic(), traffic(MOVES | {(2, 1): DEAD})):
        assert check("COL014", hung(live)).state == "clear"
        assert check("COL009", hung(live)).hits


def test_is_clear_when_every_stage_ended_well() -> None:
    assert check("COL014", fleet(2)).state == "clear"


def test_is_not_checked_without_collectives() -> None:
    case = fleet(2, collectives=None, why_not={"collectives": "--stages facts"})
    assert check("COL014", case).state == "not_checked"
