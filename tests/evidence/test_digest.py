"""What a report keeps of many lines."""

import pytest

from allready.evidence.digest import MAX_EVENTS, digest
from allready.model import (
    Absence,
    ClockOffset,
    CommRecord,
    Death,
    Event,
    GroupProgress,
    Happening,
    Operation,
    Origin,
    Position,
    ProcessRecord,
    Recorder,
    Role,
    RunEvent,
    RunEvidence,
)


def event(n: int, role: Role = Role.RECORD) -> Event:
    return Event(
        signature="nccl.version", origin=Origin(source="log", line=n, rank=1), text=f"{n}", time_s=n, role=role
    )


@pytest.mark.thorough
def test_of_too_many_events_the_first_the_last_and_the_causes_are_kept() -> None:
    middle = MAX_EVENTS
    events = tuple(event(n, Role.ROOT if n == middle else Role.RECORD) for n in range(2 * MAX_EVENTS))
    death = Death(origin=Origin(source="log"), kind="signal", signal="SIGKILL", rank=0, time_s=middle + 0.5)
    timeline = digest(RunEvidence(events=events, deaths=(death,))).timeline
    assert len(timeline) == MAX_EVENTS
    half = (MAX_EVENTS - 2) // 2
    assert [m.text for m in timeline[:half]] == [f"{n}" for n in range(half)]
    assert [(m.text, m.role) for m in timeline[half : half + 2]] == [(f"{middle}", "root"), ("SIGKILL", "death")]
    assert timeline[-1].text == f"{2 * MAX_EVENTS - 1}"
    assert [m.time_s for m in timeline] == sorted(m.time_s or 0.0 for m in timeline)


def test_events_are_on_the_clock_of_the_reference_node() -> None:
    process = ProcessRecord(
        rank=1, comms=(CommRecord(comm="0x1", rank=0, nranks=2, comm_id="0x2", started_s=5.0, completed_s=6.5),)
    )
    run = RunEvidence(
        events=(event(3),),
        processes=(process,),
        node_of_rank={1: 7},
        node_numbers={"host7": 7},
        clocks=(ClockOffset(node="host7", offset_s=2.0, uncertainty_s=0.1, num_matches=9),),
    )
    first, second = digest(run).timeline
    assert (first.time_s, first.node, first.shift_s, first.source) == (1.0, 7, -2.0, "log:3")
    assert (second.text, second.time_s, second.duration_s) == ("init of 0x2", 3.0, 1.5)


def test_a_rank_that_died_twice_ended_as_it_died_first() -> None:
    deaths = tuple(Death(origin=Origin(source="log"), kind="signal", signal=s, rank=0) for s in ("SIGKILL", "SIGTERM"))
    [row] = digest(RunEvidence(deaths=deaths)).ranks
    assert (row.ending, row.end) == ("SIGKILL", RunEvent(kind=Happening.DIED, signal="SIGKILL", shape="SIGKILL"))


def test_what_differs_between_ends_that_mean_the_same_is_left_out_of_their_shape() -> None:
    deaths = tuple(
        Death(
            origin=Origin(source="log"), kind="exception", rank=n, text=f"Error: [{n}] lost 0x{n:x} of pid {4000 + n}"
        )
        for n in range(3)
    )
    ends = [row.end for row in digest(RunEvidence(deaths=deaths)).ranks]
    assert {end.shape for end in ends if end is not None} == {"Error: # lost # of pid #"}


def test_fields_and_texts_of_a_rank_say_the_same() -> None:
    stuck = Operation(seq=64, name="all_reduce", created_s=1.0)
    group = GroupProgress(
        group="0",
        label="default_pg",
        source=Recorder.FLIGHT,
        positions={0: Position(enqueued=65, completed=63, stuck=stuck, counts={"all_reduce": 65})},
        absent={1: Absence.NO_DUMP},
    )
    first, second = digest(RunEvidence(progress=(group,), ended_well=frozenset({1}))).ranks
    assert first.end is not None
    assert (first.end.kind, first.end.operation, first.end.seq) == (Happening.WAITS, "all_reduce", 64)
    assert first.ending == "waits in all_reduce #64"
    assert first.groups == {"default_pg (flight recorder)": "65 enqueued, 63 completed, waits in all_reduce #64"}
    assert first.group_counts == {"default_pg (flight recorder)": {"all_reduce": 65}}
    assert (second.ending, second.groups) == ("ended well", {"default_pg (flight recorder)": "no dump"})
    assert second.positions[0].absent is Absence.NO_DUMP


def test_the_gpu_of_a_rank_is_a_number_beside_the_text() -> None:
    of_nvml, of_cuda, unknown = (
        ProcessRecord(rank=0, nvml_dev=3, cuda_dev=0, bus_id="1b000"),
        ProcessRecord(rank=1, cuda_dev=0),
        ProcessRecord(rank=2),
    )
    rows = digest(RunEvidence(processes=(of_nvml, of_cuda, unknown))).ranks
    assert [(row.gpu_index, row.gpu) for row in rows] == [(3, "3 (1b000)"), (0, "0"), (None, "")]


def test_a_line_that_only_begins_a_death_s_words_is_an_echo() -> None:
    death = Death(origin=Origin(source="log"), kind="exit", text="failed (exitcode: -9) local_rank: 1 of host", rank=1)
    lines = ("failed (exitcode: -9) local_rank: 1", "failed (exitcode: -8)", "")
    events = tuple(
        Event(signature="nccl.version", origin=Origin(source="log", line=n), text=text, time_s=n, role=Role.RECORD)
        for n, text in enumerate(lines)
    )
    found = [e for e in digest(RunEvidence(events=events, deaths=(death,))).timeline if e.role == "record"]
    assert [e.is_echo for e in found] == [True, False, False]
