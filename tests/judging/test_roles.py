import pytest
from msgspec.structs import replace

from allready.evidence.join.identity import Identities
from allready.judging.ends import Victims
from allready.judging.roles import settle
from allready.model import Event, Role
from tests.cases import cases
from tests.judging.made import death, event, known, process

SIZE = "gloo.size_mismatch"


def role(one: Event, *others: Event, identities: Identities | None = None, **changes: object) -> Role:
    how: dict[str, object] = {"well": frozenset(), "healthy": False, "started_s": None} | changes
    deaths = how.pop("deaths", [])
    [first, *_] = settle([one, *others], deaths, identities or known(), **how)  # type: ignore[arg-type]
    return first.role


def test_a_fault_that_shows_after_another_one_is_a_consequence() -> None:
    assert role(event(SIZE, time_s=100.0)) is Role.ROOT
    assert role(event(SIZE, time_s=100.0), event("store.name_unknown", time_s=50.0)) is Role.CASCADE
    assert role(event(SIZE, time_s=100.0), event("store.name_unknown", time_s=98.0)) is Role.ROOT
    assert role(event(SIZE, time_s=100.0), deaths=[death(rank=1, time_s=50.0)]) is Role.CASCADE


def test_what_has_no_time_is_no_consequence() -> None:
    assert role(event(SIZE), event("store.name_unknown", time_s=50.0)) is Role.ROOT


def test_nothing_is_a_fault_in_a_run_that_ended_well() -> None:
    assert role(event(SIZE), healthy=True) is Role.HARMLESS
    assert role(event(SIZE, rank=1), well=frozenset({1})) is Role.HARMLESS
    assert role(event(SIZE, rank=2), well=frozenset({1})) is Role.ROOT


def test_a_kernel_line_from_before_the_job_is_somebody_elses() -> None:
    xid = event("kernel.xid_off_the_bus", time_s=100.0)
    assert role(xid, started_s=4_000.0) is Role.HARMLESS
    assert role(xid, started_s=90.0) is Role.ROOT


SHORT_JOB = (400_000.0, 400_060.0)


@cases(
    "times, count, expected",
    [
        ((397_700.0, None), 1, Role.HARMLESS),  # 38 minutes before
        ((400_030.0, None), 1, Role.ROOT),
        ((400_030.0 - 8 * 3600, None), 1, Role.ROOT),  # in the clock of another zone
        ((400_030.0 + 5.75 * 3600, None), 1, Role.ROOT),
        ((400_030.0 - 27 * 3600, None), 1, Role.HARMLESS),
        ((397_700.0, 397_800.0), 2, Role.HARMLESS),
        ((397_700.0, 400_030.0), 2, Role.ROOT),
        ((397_700.0, 397_800.0), 3, Role.ROOT),
    ],
)
def test_a_kernel_line_that_no_zone_brings_into_the_recorded_time_is_somebody_elses(
    times: tuple[float, float | None], count: int, expected: Role
) -> None:
    xid = replace(event("kernel.xid_off_the_bus", time_s=times[0]), last_time_s=times[1], count=count)
    assert role(xid, recorded=SHORT_JOB) is expected


def test_lines_of_the_job_need_not_be_within_the_recorded_time() -> None:
    assert role(event(SIZE, time_s=100.0), recorded=SHORT_JOB) is Role.ROOT


HOUR_S = 3600.0
RUN = (1_000 * HOUR_S, 1_002 * HOUR_S)


@cases(
    "times, count, expected",
    [
        ((800.0, None), 1, Role.HARMLESS),
        ((990.0, None), 1, Role.ROOT),  # the clock of another zone, where no log of the job says when it began
        ((1_001.0, None), 1, Role.ROOT),
        ((1_012.0, None), 1, Role.ROOT),
        ((1_050.0, 1_060.0), 9, Role.HARMLESS),
        ((800.0, 1_050.0), 2, Role.HARMLESS),
        ((800.0, 1_050.0), 3, Role.ROOT),
        ((800.0, 1_001.0), 2, Role.ROOT),
        ((1_001.0, 1_050.0), 2, Role.ROOT),
    ],
)
def test_a_kernel_line_of_another_day_is_somebody_elses(
    times: tuple[float, float | None], count: int, expected: Role
) -> None:
    first, last = times
    xid = event("kernel.xid_off_the_bus", time_s=first * HOUR_S, last_time_s=last and last * HOUR_S, count=count)
    assert role(xid, span=RUN) is expected
    assert role(event(SIZE, time_s=800.0 * HOUR_S), span=RUN) is Role.ROOT, "the job's own line"


@cases(
    ("name", "pid", "victims", "expected"),
    [
        ("chrome", "999", frozenset(), Role.HARMLESS),
        ("python3", "999", frozenset(), Role.RECORD),
        ("python3", "999", frozenset({("out.node0.log", 999)}), Role.ROOT),
        ("python3", "102", frozenset(), Role.ROOT),
    ],
)
def test_a_process_that_the_kernel_ended_must_be_one_of_the_job(
    name: str, pid: str, victims: Victims, expected: Role
) -> None:
    oom = event("kernel.oom_killer", host="vm", values={"pid": pid, "name": name})
    assert role(oom, victims=victims) is expected


def test_a_kernel_log_alone_speaks_for_itself() -> None:
    oom = event("kernel.oom_killer", values={"pid": "9", "name": "chrome"})
    assert role(oom, identities=Identities()) is Role.ROOT


def test_a_loopback_address_is_right_where_all_ranks_share_a_machine() -> None:
    refused = event("gloo.peer_is_loopback")
    assert role(refused) is Role.ROOT
    alone = known(*(process(r, "node0") for r in range(4)))
    assert role(refused, identities=alone) is Role.CASCADE


@pytest.mark.parametrize(("signature", "rank"), [("cuda.out_of_memory", 1), ("store.connection_lost", None)])
def test_lines_of_nobody_on_a_node_with_one_rank_are_its_own_but_for_those_that_an_agent_writes(
    signature: str, rank: int | None
) -> None:
    seen = known(process(0, "node0"), process(1, "node1"))
    seen.rank_of_node = {"node0": 0, "node1": 1}
    line = event(signature, source="out.node1.log")
    line = replace(line, origin=replace(line.origin, node="node1", rank=None, pid=None))
    [one] = settle([line], [], seen, well=frozenset(), healthy=False, started_s=None)
    assert one.origin.rank == rank
