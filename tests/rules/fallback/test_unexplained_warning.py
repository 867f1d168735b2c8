from typing import Any

from msgspec.structs import replace

from allready.model import Confidence, Event, FaultClass, Origin, ProcessRecord, Role, Severity, SourceRecord
from tests.rules.runs import ask, death, event

TEXT = "Attribute arch of node cpu not found"


def at(line: int, pid: int = 7, host: str = "gpu0") -> Origin:
    return Origin(source="out.log", line=line, host=host, pid=pid)


def warning(line: int = 1, text: str = TEXT, **changes: Any) -> Event:
    known: dict[str, Any] = {"values": {"warning": text}, "origin": at(line)}
    return event("nccl.other_warning", text=text, **(known | changes))


def step(line: int, file: str = "graph/topo.cc:493", code: int = 3, **changes: Any) -> Event:
    known: dict[str, Any] = {"values": {"file": file, "result": str(code)}, "origin": at(line), "role": Role.CASCADE}
    return event("nccl.back_trace", text=f"{file} -> {code}", **(known | changes))


def seen(last_line: int, kind: str, **changes: Any) -> ProcessRecord:
    return ProcessRecord(host="gpu0", pid=7, last_line_class=kind, last_origin=at(last_line), **changes)


def test_a_chain_of_codes_right_behind_it_makes_it_likely() -> None:
    [hit] = ask("RES001", events=(warning(1), step(2), step(3, "init.cc:840"))).hits
    assert (hit.severity, hit.confidence, hit.culprits.ranks) == (None, Confidence.LIKELY, ())
    assert hit.values["who"] == "gpu0 (pid 7)"
    assert hit.values["phase"] == "topology"
    assert hit.values["chain"] == "graph/topo.cc:493 -> 3 ncclInternalError"


def test_the_words_of_another_process_do_not_belong_to_the_chain() -> None:
    other = warning(1, "Something odd", origin=at(1, pid=8))
    [hit] = ask("RES001", events=(other, warning(2), step(3))).hits
    assert hit.values["warning"] == TEXT


def test_a_line_that_is_harmless_as_a_rule_is_the_reason_of_a_chain_right_behind_it() -> None:
    probing = event("nccl.topology_probing", role=Role.HARMLESS, text="Could not find real path", origin=at(9))
    [hit] = ask("RES001", events=(warning(4, "Failed to open libibverbs.so"), probing, step(10, code=2))).hits
    assert (hit.values["warning"], hit.confidence) == ("Could not find real path", Confidence.LIKELY)
    far = (warning(4, "Failed to open libibverbs.so"), probing, step(40, code=2))
    assert all(h.confidence is Confidence.POSSIBLE for h in ask("RES001", events=far).hits)


def test_an_error_of_the_library_below_counts_above_a_chain_of_its_process_only() -> None:
    def below(line: int, **changes: Any) -> Event:
        known: dict[str, Any] = {"values": {"library": "UCX", "warning": "valve 3 is stuck"}, "origin": at(line)}
        return event("nccl.transport_error", **(known | changes))

    [hit] = ask("RES001", events=(below(1), step(2, "transport/net.cc:700", 2))).hits
    assert (hit.values["library"], hit.values["warning"]) == ("UCX", "valve 3 is stuck")
    assert (hit.confidence, hit.culprits.ranks, hit.fault_class) == (Confidence.LIKELY, (), FaultClass.START_PATH)
    assert ask("RES001", events=(below(1),), processes=(seen(1, "error"),)).state == "clear"
    assert ask("RES001", events=(below(1), step(40, code=2))).state == "clear"
    assert ask("RES001", events=(below(1, origin=at(1, pid=8)), step(2, code=2))).state == "clear"
    [hit] = ask("RES001", events=(below(1), warning(2), step(3, code=2))).hits
    assert (hit.values["library"], hit.values["warning"]) == ("NCCL", TEXT)


def test_a_chain_behind_a_line_that_is_understood_is_explained() -> None:
    closed = event("nccl.peer_closed", role=Role.CASCADE, origin=at(2), values={"peer": "10.0.0.2"})
    found = ask("RES001", events=(warning(1), closed, step(3, code=6)), processes=(seen(3, "error"),)).hits
    assert [h.severity for h in found] == [Severity.WARNING]


def test_a_remote_error_is_rather_the_network() -> None:
    [hit] = ask("RES001", events=(warning(1, "odd words"), step(2, "transport/net.cc:20", 6))).hits
    assert (hit.fault_class, hit.confidence) == (FaultClass.NET_BROKEN, Confidence.POSSIBLE)


def test_words_of_a_failure_that_are_the_last_ones_are_possible() -> None:
    [hit] = ask("RES001", events=(warning(5),), processes=(seen(5, "error"),)).hits
    assert (hit.severity, hit.confidence, hit.values["chain"]) == (None, Confidence.POSSIBLE, None)


def test_a_process_that_went_on_was_only_warned() -> None:
    for kind in ("connect", "operation"):
        [hit] = ask("RES001", events=(warning(5),), processes=(seen(90, kind),)).hits
        assert (hit.severity, hit.confidence) == (Severity.WARNING, Confidence.POSSIBLE)
    [hit] = ask("RES001", events=(warning(5, "Using a slow path"),), processes=(seen(5, "error"),)).hits
    assert hit.severity is Severity.WARNING
    [hit] = ask("RES001", events=(warning(5), step(6)), processes=(seen(90, "operation"),)).hits
    assert hit.severity is Severity.WARNING


def test_the_end_of_its_process_makes_it_a_fault() -> None:
    end = death(None, pid=7, host="gpu0", is_collective_error=True, origin=at(90))
    [hit] = ask("RES001", events=(warning(5, "Using a slow path"),), deaths=(end,)).hits
    assert (hit.severity, hit.confidence) == (None, Confidence.POSSIBLE)
    another = death(None, pid=8, host="gpu0", is_collective_error=True, origin=at(90, pid=8))
    [hit] = ask("RES001", events=(warning(5, "Using a slow path"),), deaths=(another,)).hits
    assert hit.severity is Severity.WARNING


def test_a_job_that_ended_well_is_not_asked() -> None:
    assert ask("RES001", events=(warning(1), step(2)), ended_well=frozenset(range(4))).state == "clear"
    assert ask("RES001").state == "clear"


def test_the_result_that_somebody_tells_behind_it_makes_it_a_fault() -> None:
    raised = event("nccl.result_internal", role=Role.CASCADE, origin=Origin(source="out.log", line=50))
    [hit] = ask("RES001", events=(warning(5, "Using a slow path"), raised)).hits
    assert (hit.severity, hit.confidence) == (None, Confidence.POSSIBLE)
    before = event("nccl.result_internal", role=Role.CASCADE, origin=Origin(source="out.log", line=2))
    [hit] = ask("RES001", events=(warning(5, "Using a slow path"), before)).hits
    assert hit.severity is Severity.WARNING


def test_words_after_which_the_file_goes_on_are_not_the_last_ones() -> None:
    for num_lines, severity in ((6, None), (500, Severity.WARNING)):
        source = SourceRecord(path="out.log", kind="log", num_lines=num_lines)
        [hit] = ask("RES001", events=(warning(5),), sources=(source,)).hits
        assert hit.severity is severity


def test_what_is_printed_while_the_job_is_ended_by_order_is_not_asked() -> None:
    order = event("elastic.closing_signal", role=Role.TEARDOWN, origin=Origin(source="out.log", line=3))
    assert ask("RES001", events=(order, warning(5), step(6))).state == "clear"


def test_a_chain_behind_which_the_output_goes_on_is_a_warning() -> None:
    known = {"events": (warning(1), step(2), step(3, "init.cc:840"))}
    source = SourceRecord(path=warning(1).origin.source, kind="log", num_lines=12)
    assert ask("RES001", sources=(source,), **known).hits[0].severity is None
    [hit] = ask("RES001", sources=(replace(source, num_lines=400),), **known).hits
    assert (hit.severity, hit.confidence) == (Severity.WARNING, Confidence.POSSIBLE)
