from allready.model import Confidence, Misfit
from tests.rules.desync.test_other_call import mismatch
from tests.rules.runs import ask, operation

PAIR = (Misfit(sender=3, receiver=0, num_sent=5, num_expected=4),)


def test_names_who_has_a_part_in_all_that_does_not_fit() -> None:
    misfits = (*PAIR, Misfit(sender=3, receiver=1, num_sent=3, num_expected=4))
    found = mismatch((3,), operation(64, "all_to_all"), kind="splits", misfits=misfits)
    [hit] = ask("DSY004", mismatches=(found,)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((3,), Confidence.CERTAIN)
    assert hit.values["sender"] == "rank 3 (node 1)"
    assert (hit.values["num_sent"], hit.values["receiver"], hit.values["num_expected"]) == (5, 0, 4)
    assert "rank 3 sends 3 elements to rank 1, rank 1 expects 4" in [e.text for e in hit.evidence]


def test_of_a_single_pair_both_are_named_unless_another_pair_could_tell() -> None:
    [hit] = ask("DSY004", mismatches=(mismatch((), operation(64), kind="splits", misfits=PAIR),)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((0, 3), Confidence.LIKELY)
    unknown = mismatch((), operation(64), kind="splits", misfits=PAIR, missing=(1,))
    [hit] = ask("DSY004", mismatches=(unknown,)).hits
    assert not hit.culprits
    assert hit.values["who"] == "rank 0,3 (node 0, 1)"


def test_it_is_neither_another_call_nor_another_size() -> None:
    by_rank = {r: operation(64, "all_to_all", site=f"train.py:{r} f") for r in range(4)}
    found = mismatch((3,), operation(64), kind="splits", misfits=PAIR, by_rank=by_rank)
    assert ask("DSY001", mismatches=(found,)).state == "clear"
    assert ask("DSY002", mismatches=(found,)).state == "clear"
    assert ask("DSY004", mismatches=(found,)).state == "hit"


def test_other_differences_are_not_its_matter() -> None:
    assert ask("DSY004", mismatches=(mismatch((3,), operation(64), kind="size"),)).state == "clear"
    assert ask("DSY004").state == "clear"
