"""What a report keeps of many lines."""

from allready.evidence.digest import MAX_MOMENTS, digest
from allready.model import ClockOffset, CommRecord, Death, Event, Origin, ProcessRecord, Role, RunEvidence


def event(n: int, role: Role = Role.RECORD) -> Event:
    return Event(
        signature="nccl.version", origin=Origin(source="log", line=n, rank=1), text=f"{n}", time_s=n, role=role
    )


def test_of_too_many_moments_the_first_the_last_and_the_causes_are_kept() -> None:
    middle = MAX_MOMENTS
    events = tuple(event(n, Role.ROOT if n == middle else Role.RECORD) for n in range(2 * MAX_MOMENTS))
    death = Death(origin=Origin(source="log"), kind="signal", signal="SIGKILL", rank=0, time_s=middle + 0.5)
    moments = digest(RunEvidence(events=events, deaths=(death,))).moments
    assert len(moments) == MAX_MOMENTS
    half = (MAX_MOMENTS - 2) // 2
    assert [m.text for m in moments[:half]] == [f"{n}" for n in range(half)]
    assert [(m.text, m.role) for m in moments[half : half + 2]] == [(f"{middle}", "root"), ("SIGKILL", "death")]
    assert moments[-1].text == f"{2 * MAX_MOMENTS - 1}"
    assert [m.time_s for m in moments] == sorted(m.time_s or 0.0 for m in moments)


def test_moments_are_on_the_clock_of_the_reference_node() -> None:
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
    first, second = digest(run).moments
    assert (first.time_s, first.node, first.shift_s, first.source) == (1.0, 7, -2.0, "log:3")
    assert (second.text, second.time_s, second.duration_s) == ("init of 0x2", 3.0, 1.5)


def test_a_rank_that_died_twice_ended_as_it_died_first() -> None:
    deaths = tuple(Death(origin=Origin(source="log"), kind="signal", signal=s, rank=0) for s in ("SIGKILL", "SIGTERM"))
    [row] = digest(RunEvidence(deaths=deaths)).ranks
    assert row.ending == "SIGKILL"
