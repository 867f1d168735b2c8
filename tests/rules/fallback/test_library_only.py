from typing import Any

from allready.model import Confidence, Death, Role
from tests.rules.runs import ask, death, event

ABORTED = "RuntimeError: NCCL communicator was aborted."


def lost(rank: int | None = 2, **changes: Any) -> Death:
    known: dict[str, Any] = {"text": ABORTED, "is_collective_error": True}
    return death(rank, **(known | changes))


def test_an_error_of_the_library_alone_is_told_and_accuses_nobody() -> None:
    [hit] = ask("RES012", deaths=(lost(),)).hits
    assert (hit.values["error"], hit.confidence) == (ABORTED, Confidence.POSSIBLE)
    assert str(hit.values["who"]).startswith("rank 2")
    assert not hit.culprits


def test_it_says_nothing_beside_a_cause() -> None:
    assert ask("RES012", deaths=(lost(), death(1))).state == "clear"
    root = event("nccl.no_socket_interface", role=Role.ROOT)
    assert ask("RES012", deaths=(lost(),), events=(root,)).state == "clear"
    assert ask("RES012", deaths=(lost(),), events=(event("torch.watchdog_timeout"),)).state == "clear"


def test_it_says_nothing_of_an_attempt_that_is_over_or_of_an_end_that_was_ordered() -> None:
    assert ask("RES012", deaths=(lost(earlier=True),)).state == "clear"
    assert ask("RES012", deaths=(lost(by_launcher=True),)).state == "clear"
    order = event("elastic.death_signal", time_s=995.0)
    assert ask("RES012", deaths=(lost(),), events=(order,)).state == "clear"
    assert ask("RES012").state == "clear"
