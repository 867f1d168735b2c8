"""Conditions that one signature alone needs."""

import pytest

from allready.errors import TableError
from allready.model import Event, FaultClass, Origin, Role, Severity
from allready.model.fill import placeholders_of
from allready.signatures import load
from allready.signatures.conditions import CASES, CULPRITS, IDS, hint_of
from allready.signatures.table import tables
from tests.cases import cases

SIGNATURES = load()


def line(text: str, number: int = 1, *, time_s: float | None = None, count: int = 1, **values: str) -> Event:
    origin = Origin(source="log", host="n1", line=number)
    return Event(signature="x", origin=origin, text=text, role=Role.ROOT, time_s=time_s, count=count, values=values)


def severity(signature: str, event: Event, **run: Event) -> Severity | None:
    told = {name.replace("__", "."): [other] for name, other in run.items()}
    return SIGNATURES[signature].case_of([event], told).severity


def test_every_condition_belongs_to_a_signature() -> None:
    assert set(SIGNATURES) >= IDS


def test_whom_python_finds_the_table_does_not_name() -> None:
    assert {SIGNATURES[signature].culprit for signature in CULPRITS} == {"none"}


def test_a_condition_in_python_stands_alone() -> None:
    assert not any(case.role is None for signature in CASES for case in SIGNATURES[signature].cases)


def test_a_remedy_with_a_hint_always_has_one() -> None:
    wanting = [s.id for s in SIGNATURES.values() if "hint" in placeholders_of(s.steps)]
    assert wanting
    assert all(hint_of(signature, "words that nothing fits") for signature in wanting)
    assert hint_of("launcher.slurm_launch_failed", "Job credential expired")["hint"].startswith("date;")
    assert hint_of("nccl.no_socket_interface", "x") == {}


def test_one_lookup_for_each_rank_of_a_node_is_a_warning_and_lookups_without_end_are_none() -> None:
    text = "The IPv6 network addresses of (a, 1) cannot be retrieved"
    assert severity("store.name_unknown", line(text, count=8)) is Severity.WARNING
    assert severity("store.name_unknown", line(text, count=9)) is None
    assert severity("store.name_unknown", line(text.replace("IPv6", "IPv4"))) is None


def test_who_never_reached_the_store_was_there_and_the_count_of_those_who_did_is_a_warning() -> None:
    waited = line("Timed out after 121 seconds waiting for clients. 1/2 clients joined.")
    tried = line("The client socket has timed out after 120000ms while trying to connect to (n0, 29500).", 9)
    assert severity("store.waiting_for_clients", waited, store__connect_timeout=tried) is Severity.WARNING
    assert severity("store.waiting_for_clients", waited) is None


STALL = "nfs: server storage01 not responding, still trying"


@cases(
    ("begin_s", "end_s", "server", "is_pause"),
    [(0.0, 30.0, "a", True), (0.0, 31.0, "a", False), (0.0, 5.0, "b", False), (None, 5.0, "a", False)],
)
def test_storage_that_answers_again_within_half_a_minute_is_a_warning(
    begin_s: float | None, end_s: float, server: str, is_pause: bool
) -> None:
    answer = line("nfs: server OK", 2, time_s=end_s, server=server)
    found = severity("kernel.storage_stalled", line(STALL, time_s=begin_s, server="a"), kernel__storage_answers=answer)
    assert (found is Severity.WARNING) == is_pause


@pytest.mark.parametrize(("at", "is_scheduled"), [(6, True), (7, False), (1, False)])
def test_a_pod_that_was_scheduled_a_few_lines_below_is_a_warning(at: int, is_scheduled: bool) -> None:
    waiting, later = line("0/4 nodes are available: 4 Insufficient nvidia.com/gpu"), line("Successfully assigned", at)
    found = severity("launcher.kubernetes_not_started", waiting, launcher__kubernetes_scheduled=later)
    assert (found is Severity.WARNING) == is_scheduled


def test_equal_operations_with_equal_numbers_differ_in_arguments() -> None:
    signature = SIGNATURES["torch.fingerprint_mismatch"]

    def fault_class(seq_b: str, op_b: str) -> FaultClass | None:
        event = line("x", op_a="ALLREDUCE", seq_a="3", op_b=op_b, seq_b=seq_b)
        return signature.case_of([event]).fault_class

    assert fault_class("3", "ALLREDUCE") is FaultClass.DESYNC_ARGS
    assert fault_class("4", "ALLREDUCE") is None
    assert fault_class("3", "BARRIER") is None
    assert signature.case_of([line("x")]).fault_class is None


def test_a_key_that_does_not_exist_is_a_mistake() -> None:
    from allready.signatures import table

    entry = tables()["nccl"]["finding"][0]
    with pytest.raises(TableError, match="unknown field `colour`"):
        table._signature("nccl", entry | {"colour": "red"})


def test_a_case_changes_a_lines_role_or_a_findings_severity_and_class() -> None:
    for signature in load().values():
        for case in signature.cases:
            assert bool(case.role) + any((case.severity, case.fault_class)) + case.can_go_without == 1, signature.id
            assert case.role is not None or not (case.front or case.progress), "what was around a line is not kept"
            is_of_one = case.role is not None or case.can_go_without
            assert not is_of_one or not (case.beside or case.without), "a line is read before others are known"
