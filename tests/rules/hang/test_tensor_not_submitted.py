from collections.abc import Mapping
from typing import Any

from allready.model import Confidence, Event, FaultClass, Role, TensorRanks, TensorStall
from tests.rules.runs import ask, death, event, one_missing

Ranks = tuple[int, ...]
MISSING: dict[str, Ranks] = {"allreduce.conv1.weight": (1, 3), "allreduce.conv2.weight": (1,)}


def report(
    role: Role = Role.RECORD,
    *,
    missing: Mapping[str, Ranks] | None = None,
    ready: Mapping[str, Ranks] | None = None,
    stopped: Ranks = (),
    cut: Ranks = (),
) -> Event:
    tables = (tuple(TensorRanks(*one) for one in (table or {}).items()) for table in (missing, ready))
    stall = TensorStall(missing=next(tables), ready=next(tables), stopped=stopped, cut=cut)
    return event("launcher.horovod_stalled", 0, role=role, values={"seconds": "60"}, stall=stall)


def hit_of(*events: Event, **changes: Any) -> Any:
    [hit] = ask("HNG013", events=events, **changes).hits
    return hit


def test_the_missing_ranks_are_named() -> None:
    hit = hit_of(report(missing=MISSING), expected_ranks=8)
    assert (hit.culprits.ranks, hit.fault_class) == ((1, 3), None)
    assert (hit.values["tensor"], hit.values["more"]) == ("allreduce.conv1.weight", " (+1)")
    assert hit.confidence is Confidence.POSSIBLE


def test_who_made_horovod_end_the_job_is_more_than_possible() -> None:
    hit = hit_of(report(missing=MISSING, stopped=(3,)))
    assert (hit.culprits.ranks, hit.confidence) == ((3,), Confidence.LIKELY)


def test_who_is_ready_tells_who_is_not_where_the_world_is_known() -> None:
    assert hit_of(report(ready={"allreduce.x": (0, 1, 3)}), expected_ranks=4).culprits.ranks == (2,)
    assert hit_of(report(ready={"allreduce.x": (0, 1, 3)}), expected_ranks=0).culprits.ranks == (2,)


def test_a_few_who_wait_for_nearly_everybody_made_a_call_more() -> None:
    hit = hit_of(report(missing={"allreduce.accuracy": (1, 2, 3)}), expected_ranks=4)
    assert (hit.culprits.ranks, hit.fault_class, hit.confidence) == ((0,), FaultClass.DESYNC_FLOW, Confidence.POSSIBLE)
    unknown = hit_of(report(missing={"allreduce.accuracy": (1, 2, 3)}), expected_ranks=0)
    assert unknown.culprits.ranks == (1, 2, 3)


def test_old_lines_by_tensor_are_put_together() -> None:
    lines = [
        event("launcher.horovod_stalled", 0, values={"tensor": "HorovodBroadcast_a_0", "ranks": "2"}),
        event("launcher.horovod_stalled", 0, values={"tensor": "HorovodBroadcast_b_0", "ranks": "2"}),
    ]
    assert hit_of(*lines).culprits.ranks == (2,)


def test_a_late_rank_a_death_and_better_evidence_clear_it() -> None:
    told = report(missing=MISSING)
    assert ask("HNG013", events=(report(Role.HARMLESS, missing=MISSING),)).state == "clear"
    assert ask("HNG013", events=(told,), deaths=(death(3),)).state == "clear"
    assert ask("HNG013", events=(report(),)).state == "clear"


def test_that_horovod_was_shut_down_is_no_reason_of_its_own() -> None:
    """Every rank raises it when the stall is ended."""
    text = (
        "RuntimeError: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt "
        "to allreduce, allgather or broadcast a tensor after one of the ranks finished execution."
    )
    deaths = tuple(death(r, text=text) for r in (0, 1, 2))
    told = report(missing=MISSING, stopped=(3,))
    assert ask("HNG013", events=(told,), deaths=deaths).hits[0].culprits.ranks == (3,)
    assert ask("DTH001", events=(told,), deaths=deaths).state == "clear"


def test_flight_records_do_not_contradict_it() -> None:
    told = report(missing={"allreduce.x": (2,)})
    assert ask("HNG013", events=(told,), progress=(one_missing(2),)).hits[0].culprits.ranks == (2,)
