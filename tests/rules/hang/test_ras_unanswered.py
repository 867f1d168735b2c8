from typing import Any

from msgspec.structs import replace

from allready.model import Absence, Confidence, FaultClass, GroupProgress, Live, Origin, Position
from tests.fleets import check
from tests.rules.runs import ask, run_fleet


def answer(absent: dict[int, Absence], **changes: Any) -> GroupProgress:
    """What RAS says of four ranks; the text report tells of no other process how far he came."""
    known: dict[str, Any] = {
        "group": "0xabc",
        "source": "ras",
        "size": 4,
        "members": tuple(absent),
        "absent": absent,
        "origin": Origin(source="ras.txt", line=20),
    }
    return GroupProgress(**(known | changes))


def test_names_the_rank_that_does_not_answer() -> None:
    [hit] = ask("HNG011", progress=(answer({3: Absence.UNRESPONSIVE}),)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((3,), Confidence.POSSIBLE)
    assert hit.fault_class is FaultClass.CPU_STUCK
    assert (hit.values["num_answered"], hit.values["size"]) == (3, 4)


def test_a_second_answer_and_a_minute_of_silence_leave_less_doubt() -> None:
    [hit] = ask("HNG011", progress=(answer({3: Absence.UNRESPONSIVE}, complete=True),)).hits
    assert (hit.fault_class, hit.confidence) == (FaultClass.CPU_STUCK, Confidence.LIKELY)
    [hit] = ask("HNG011", progress=(answer({2: Absence.DEAD, 3: Absence.DEAD}),)).hits
    assert (hit.fault_class, hit.confidence) == (FaultClass.DEAD, Confidence.LIKELY)


def test_of_several_nobody_knows_who_was_first() -> None:
    for silent in ((2, 3), (1, 2, 3)):
        [hit] = ask("HNG011", progress=(answer(dict.fromkeys(silent, Absence.UNRESPONSIVE)),)).hits
        assert not hit.culprits
        assert hit.values["num_answered"] == 4 - len(silent)


def test_it_leaves_the_word_to_who_knows_more() -> None:
    silent = answer({3: Absence.UNRESPONSIVE})
    assert ask("HNG011", progress=(silent,), ended_well=frozenset({3})).state == "clear"
    waiting = {r: Position(enqueued=9, counts={"all_reduce": 9}) for r in range(3)}
    known = replace(silent, positions=waiting, members=(0, 1, 2, 3))
    assert ask("HNG002", progress=(known,)).state == "hit"
    assert ask("HNG011", progress=(known,)).state == "clear"
    fleet = run_fleet(progress=(silent,))
    assert check("HNG011", replace(fleet, live=Live(now_s=1.0))).state == "clear"


def test_ranks_that_are_only_missing_are_no_silent_ones() -> None:
    assert ask("HNG011", progress=(answer({3: Absence.MISSING}),)).state == "clear"
    assert ask("HNG011").state == "clear"
