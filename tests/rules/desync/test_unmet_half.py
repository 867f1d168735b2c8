from allready.judging.loading import load
from allready.model import Confidence, FaultClass, Mismatch, Recorder
from tests.rules.live import made as live
from tests.rules.runs import ask, death, operation


def unmet(rank: int, peer: int, name: str = "recv", seq: int = 3) -> Mismatch:
    return Mismatch(
        group="0xabc",
        source=Recorder.COLL_LOG,
        kind="peer",
        seq=seq,
        missing=(peer,),
        by_rank={rank: operation(seq, name, root=peer)},
    )


def test_names_who_never_posted_the_other_half() -> None:
    [hit] = ask("DSY006", mismatches=(unmet(1, 2),)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.POSSIBLE)
    assert "recv [1024]" in str(hit.values["half"])
    assert load()["DSY006"].fault_class is FaultClass.DESYNC_FLOW


def test_two_that_wait_for_each_other_are_shown_and_nobody_is_accused() -> None:
    [hit] = ask("DSY006", mismatches=(unmet(3, 0), unmet(1, 2), unmet(2, 1))).hits
    assert (bool(hit.culprits), hit.confidence, len(hit.evidence)) == (False, Confidence.LIKELY, 2)


def test_a_send_and_a_receive_between_two_are_no_circle() -> None:
    [hit] = ask("DSY006", mismatches=(unmet(1, 2, "send"), unmet(2, 1, "recv"))).hits
    assert hit.culprits.ranks == (2,)


def test_it_is_no_other_call_and_no_other_argument() -> None:
    for code in ("DSY001", "DSY002", "DSY004"):
        assert ask(code, mismatches=(unmet(1, 2),)).state == "clear"


def test_a_death_explains_it() -> None:
    assert ask("DSY006", mismatches=(unmet(1, 2),), deaths=(death(2),)).state == "clear"
    assert ask("DSY006").state == "clear"


def test_of_a_running_job_only_two_that_wait_for_each_other_are_reported() -> None:
    """A half that stands alone may get the other one yet."""
    assert live.ask("DSY006", mismatches=(unmet(1, 2),)).state == "clear"
    [hit] = live.ask("DSY006", mismatches=(unmet(3, 0), unmet(1, 2), unmet(2, 1))).hits
    assert (bool(hit.culprits), hit.confidence) == (False, Confidence.LIKELY)
