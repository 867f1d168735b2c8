"""LIV011."""

from allready.model import Severity
from tests.rules.live.made import ask, mark, waiting

BEGUN = [waiting(r, groups=(mark(64, started=64),)) for r in range(4)]
HELD = waiting(2, groups=(mark(64, started=63),))


def test_names_the_rank_whose_gpu_has_not_begun() -> None:
    [hit] = ask("LIV011", *BEGUN, HELD).hits
    assert (hit.culprits.ranks, hit.severity) == ((2,), None)


def test_at_first_it_only_waits() -> None:
    young = [waiting(r, groups=(mark(64, started=63 if r == 2 else 64, waiting_s=3.0),)) for r in range(4)]
    [hit] = ask("LIV011", *young).hits
    assert hit.severity is Severity.WARNING


def test_all_begun_is_another_matter() -> None:
    assert ask("LIV011", *BEGUN).state == "clear"


def test_a_recorder_that_does_not_tell_accuses_nobody() -> None:
    assert ask("LIV011").state == "clear"


def test_nobody_is_behind_when_all_are() -> None:
    assert ask("LIV011", *(waiting(r, groups=(mark(64, started=63),)) for r in range(4))).state == "clear"
