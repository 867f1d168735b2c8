from allready.model import Confidence
from tests.rules.hang.test_tensor_not_submitted import report
from tests.rules.runs import ask, death

APART: dict[str, tuple[int, ...]] = {
    "allreduce.conv1.weight": (0, 1, 2),
    "allreduce.conv2.weight": (0, 1, 2),
    "allreduce.avg_loss": (3,),
}


def test_the_minority_that_submits_other_tensors_is_named() -> None:
    [hit] = ask("DSY005", events=(report(missing=APART),)).hits
    assert hit.culprits.ranks == (3,)
    assert (hit.values["tensor"], str(hit.values["other"])) == ("allreduce.conv1.weight", "allreduce.avg_loss")
    assert hit.confidence is Confidence.POSSIBLE
    assert ask("HNG013", events=(report(missing=APART),)).state == "clear"


def test_two_ranks_are_a_tie() -> None:
    [hit] = ask("DSY005", events=(report(missing={"allreduce.a": (0,), "allreduce.b": (1,)}, stopped=(0, 1)),)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.LIKELY)


def test_a_rank_that_is_further_behind_submits_nothing_else() -> None:
    nested = report(missing={"allreduce.a": (1, 3), "allreduce.b": (1,)})
    assert ask("DSY005", events=(nested,)).state == "clear"


def test_what_was_cut_off_a_list_shows_no_difference() -> None:
    cut = report(missing={"allreduce.a": (1, 3), "allreduce.b": (1,), "allreduce.c": (3,)}, cut=(1, 3))
    assert ask("DSY005", events=(cut,)).state == "clear"


def test_a_death_explains_it() -> None:
    assert ask("DSY005", events=(report(missing=APART),), deaths=(death(3),)).state == "clear"
