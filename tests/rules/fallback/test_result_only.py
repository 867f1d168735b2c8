from typing import Any

from allready.model import Confidence, Event, FaultClass, Origin, ProcessRecord, Role
from tests.rules.runs import ask, event


def result(kind: str = "system", rank: int | None = 1, line: int = 9, **changes: Any) -> Event:
    origin = Origin(source="out.log", line=line, rank=rank)
    known: dict[str, Any] = {"role": Role.CASCADE, "origin": origin, "text": "RuntimeError: NCCL error: unhandled"}
    return event(f"nccl.result_{kind}", **(known | changes))


def test_a_bare_result_says_what_kind_of_call_failed_and_accuses_nobody() -> None:
    [hit] = ask("RES004", events=(result(),)).hits
    assert (hit.values["result"], hit.confidence) == ("ncclSystemError", Confidence.POSSIBLE)
    assert not hit.culprits


def test_the_last_warning_that_torch_prints_below_the_result_is_shown() -> None:
    told = result("internal", values={"last_error": "No NCCL_TUNER_CONFIG_PATH provided. "})
    [hit] = ask("RES004", events=(result("internal"), told)).hits
    assert hit.values["said"] == "No NCCL_TUNER_CONFIG_PATH provided."
    [hit] = ask("RES004", events=(result("internal", values={"last_error": ""}),)).hits
    assert hit.values["said"] is None


def test_who_failed_by_itself_is_told_before_those_that_lost_another() -> None:
    [hit] = ask("RES004", events=(result("remote", 0), result("invalid", 2))).hits
    assert (hit.values["result"], hit.fault_class) == ("ncclInvalidUsage", FaultClass.DESYNC_ARGS)
    assert str(hit.values["who"]).startswith("rank 2")


def test_the_last_error_that_torch_repeats_is_told() -> None:
    [hit] = ask("RES004", events=(result(values={"last_error": "ring 7 came out wobbly"}),)).hits
    assert (hit.values["said"], hit.confidence) == ("ring 7 came out wobbly", Confidence.POSSIBLE)
    [hit] = ask("RES004", events=(result(),)).hits
    assert hit.values["said"] is None


def test_a_warning_or_a_lost_peer_tells_more() -> None:
    for more in ("nccl.other_warning", "nccl.peer_closed", "store.connection_lost"):
        assert ask("RES004", events=(result(), event(more, 0))).state == "clear"


def test_what_an_order_brought_about_or_an_earlier_attempt_wrote_is_not_asked() -> None:
    order = event("elastic.closing_signal", origin=Origin(source="out.log", line=3))
    assert ask("RES004", events=(order, result())).state == "clear"
    assert ask("RES004", events=(result(role=Role.HARMLESS),)).state == "clear"


def test_who_ended_well_is_not_asked() -> None:
    assert ask("RES004", events=(result(),), ended_well=frozenset({1})).state == "clear"
    last = Origin(source="out.log", line=90, rank=1)
    moving = ProcessRecord(rank=1, last_line_class="operation", last_origin=last)
    assert ask("RES004", events=(result(text="caught: NCCL failed"),), processes=(moving,)).state == "clear"
    assert ask("RES004").state == "clear"
