import pytest
from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import Confidence, FaultClass, Live
from tests.fleets import check
from tests.rules.desync.test_other_call import mismatch
from tests.rules.runs import ask, operation, run_fleet


def test_names_the_rank_with_another_size_and_the_iteration() -> None:
    [hit] = ask("DSY002", mismatches=(mismatch((3,), operation(64, num_elements=512), kind="size", iteration=30),)).hits
    assert hit.culprits.ranks == (3,)
    assert "[512]" in str(hit.values["odd"])
    assert hit.values["iteration"] == 30
    assert load()["DSY002"].fault_class is FaultClass.DESYNC_ARGS


def test_another_dtype_is_told_as_such() -> None:
    [hit] = ask("DSY002", mismatches=(mismatch((1,), operation(64, dtype="bfloat16"), kind="dtype"),)).hits
    assert hit.values["kind"] == "dtype"


def test_blames_nobody_on_a_tie() -> None:
    [hit] = ask("DSY002", mismatches=(mismatch((), operation(64, num_elements=1), kind="size"),)).hits
    assert not hit.culprits


def test_a_flag_that_meets_a_tensor_is_another_call() -> None:
    by_rank = {r: operation(64, num_elements=1 if r == 3 else 1 << 20) for r in range(4)}
    flag = mismatch((3,), operation(64), kind="size", by_rank=by_rank)
    assert (ask("DSY001", mismatches=(flag,)).state, ask("DSY002", mismatches=(flag,)).state) == ("hit", "clear")
    by_rank = {r: operation(64, num_elements=1000 if r == 3 else 1 << 20) for r in range(4)}
    batch = mismatch((3,), operation(64), kind="size", by_rank=by_rank)
    assert (ask("DSY001", mismatches=(batch,)).state, ask("DSY002", mismatches=(batch,)).state) == ("clear", "hit")


def test_other_call_sites_mean_another_flow() -> None:
    here = mismatch((3,), operation(64, num_elements=4, site="eval.py:3 f"), kind="size")
    assert ask("DSY002", mismatches=(here,)).state == "hit"  # the others' sites are not known
    by_rank = {r: operation(64, site="eval.py:3 f" if r == 3 else "train.py:9 g") for r in range(4)}
    known = mismatch((3,), operation(64), kind="size", by_rank=by_rank)
    assert ask("DSY002", mismatches=(known,)).state == "clear"
    assert ask("DSY001", mismatches=(known,)).state == "hit"


def test_the_same_call_from_another_line_is_no_other_flow() -> None:
    by_rank = {r: operation(64, site="train.py:8 g" if r == 3 else "train.py:9 g") for r in range(4)}
    known = mismatch((3,), operation(64), kind="dtype", by_rank=by_rank, is_same_call=True)
    assert ask("DSY002", mismatches=(known,)).state == "hit"
    assert ask("DSY001", mismatches=(known,)).state == "clear"


@pytest.mark.parametrize(("code", "kind"), [("DSY001", "name"), ("DSY002", "size")])
def test_calls_of_which_only_digests_are_known_wait_for_the_recorders(code: str, kind: str) -> None:
    """A rank that skipped a call is in another operation: its size differs, too."""
    other = operation(64, "barrier" if kind == "name" else "all_reduce")
    unknown = mismatch((3,), other, kind=kind, is_by_digest=True)
    fleet = run_fleet(mismatches=(unknown,))
    early, late = (Live(now_s=1000.0 + s, since_s=1000.0) for s in (0.5, 3.0))
    assert check(code, replace(fleet, live=early)).state == "clear"
    [hit] = check(code, replace(fleet, live=late)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((3,), Confidence.LIKELY)
    [hit] = check(code, replace(fleet, live=None)).hits
    assert hit.confidence is Confidence.LIKELY


def test_while_the_line_of_one_rank_is_not_known_it_may_be_another_call() -> None:
    """Of a rank that was aborted the line comes last, with the stack of its crash."""
    by_rank = {r: operation(64, site=None if r == 3 else "train.py:9 g") for r in range(4)}
    half_known = mismatch((3,), operation(64, num_elements=None), kind="size", by_rank=by_rank)
    fleet = run_fleet(mismatches=(half_known,))
    early, late = (Live(now_s=1000.0 + s, since_s=1000.0) for s in (0.5, 3.0))
    assert check("DSY002", replace(fleet, live=early)).state == "clear"
    assert check("DSY002", replace(fleet, live=late)).state == check("DSY002", fleet).state == "hit"


def test_nothing_differs() -> None:
    assert ask("DSY002").state == "clear"
