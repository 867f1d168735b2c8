from typing import Any

from allready.model import Confidence, Event, Origin, Role, Severity
from tests.rules.runs import ask, event

REMOTE = "[gpu09]:29500"


def lost(rank: int | None = None, line: int = 1, **changes: Any) -> Event:
    known: dict[str, Any] = {
        "role": Role.CASCADE,
        "values": {"error": "Broken pipe", "remote": REMOTE},
        "origin": Origin(source="out.log", line=line, rank=rank),
    }
    return event(changes.pop("signature", "store.connection_lost"), **(known | changes))


def test_an_exception_is_a_fault_of_the_one_who_hosts_the_store() -> None:
    [hit] = ask("RES003", events=(lost(1, extra=("Traceback (most recent call last):",)),)).hits
    assert (hit.values["remote"], hit.severity, hit.confidence) == ("gpu09:29500", None, Confidence.POSSIBLE)
    assert not hit.culprits


def test_several_victims_of_one_host_make_it_likely_and_its_node_is_named_where_it_is_known() -> None:
    raised = ("Traceback (most recent call last):",)
    lines = (lost(0, extra=raised), lost(1, 9, extra=raised))
    [hit] = ask("RES003", events=lines, node_numbers={"node0": 0, "gpu09": 1}).hits
    assert (hit.confidence, hit.culprits.nodes) == (Confidence.LIKELY, (1,))


def test_a_victim_on_that_very_host_clears_it() -> None:
    lines = (lost(2, extra=("Traceback",)),)
    [hit] = ask("RES003", events=lines, node_numbers={"node0": 0, "gpu09": 1}).hits
    assert not hit.culprits


def test_a_line_at_the_end_without_a_failure_is_a_warning_only() -> None:
    [hit] = ask("RES003", events=(lost(1), lost(2, 4, signature="torch.dump_flag_unreadable"))).hits
    assert hit.severity is Severity.WARNING


def test_an_agent_without_heartbeat_that_stops_its_workers_lost_its_host() -> None:
    values = {"node": "gpu02_77_0", "run_id": "a", "error": "RendezvousConnectionError"}
    beat = lost(signature="elastic.keep_alive_failed", values=values)
    [alone] = ask("RES003", events=(beat,)).hits
    [stopped] = ask("RES003", events=(beat, event("elastic.closing_signal", role=Role.TEARDOWN))).hits
    assert (alone.severity, stopped.severity) == (Severity.WARNING, None)
    assert (stopped.values["who"], stopped.values["remote"]) == ("gpu02_77_0", None)


def test_who_ended_well_lost_nothing() -> None:
    assert ask("RES003", events=(lost(1),), ended_well=frozenset({1})).state == "clear"
    assert ask("RES003").state == "clear"


def test_an_agent_that_waited_for_the_others_at_the_end_lost_nothing() -> None:
    at_the_end = event("elastic.exit_barrier_failed", origin=Origin(source="out.log", line=20))
    lines = (lost(line=3), lost(line=26, extra=("Traceback",)))
    assert ask("RES003", events=(*lines, at_the_end)).state == "clear"
    assert ask("RES003", events=(*lines, lost(line=300), at_the_end)).hits
