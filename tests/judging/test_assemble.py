import io

import pytest
from msgspec.structs import replace

from allready.evidence.nccl_record import read_nccl_record
from allready.evidence.operations import OperationsJoin
from allready.evidence.readers import ReaderContext
from allready.evidence.reading import Reading
from allready.judging import calls
from allready.judging.assemble import assemble, world_of
from allready.model import BenchRow, BenchRun, Closing, ClosingKind, Death, Origin, ProcessRecord, SourceRecord
from tests.clock import timed
from tests.evidence.flight.make import dump, entry, loaded
from tests.evidence.test_nccl_record import LOOP, log
from tests.judging.made import comm, event, process, reading


def test_since_keeps_what_has_no_time() -> None:
    found = assemble(
        [
            reading(
                "a",
                0.0,
                9.0,
                event("torch.watchdog_timeout", rank=0, time_s=1.0),
                event("torch.watchdog_timeout", rank=1, time_s=8.0),
                event("elastic.failure_table"),
            )
        ],
        since_s=5.0,
    )
    assert [e.time_s for e in found.events] == [8.0, None]


def test_the_world_has_the_nodes_by_their_names() -> None:
    found = assemble([reading("a", 0.0, 1.0, processes=[process(r, f"node{r // 2}") for r in range(4)])])
    world = world_of(found)
    assert [(n.node_rank, n.ranks) for n in world.nodes] == [(0, (0, 1)), (1, (2, 3))]


def test_the_watchdog_of_an_attempt_that_is_over_says_nothing_of_the_last_one() -> None:
    waited = event("torch.watchdog_timeout", 5, rank=0, time_s=10.0, values={"seq": "7", "op": "ALLREDUCE"})
    failed = event("elastic.child_failed", 20, pid=9, time_s=20.0)
    started = event("elastic.workers_starting", 22, time_s=21.0)
    assert assemble([reading("out.node0.log", 0.0, 30.0, waited, failed)]).progress != ()
    assert assemble([reading("out.node0.log", 0.0, 30.0, waited, failed, started)]).progress == ()


def test_nothing_gives_an_empty_aftermath() -> None:
    found = assemble([])
    assert (found.expected_ranks, found.events, world_of(found).nodes) == (0, (), ())


@pytest.mark.thorough
def test_four_thousand_ranks_are_joined_in_seconds() -> None:
    def of(rank: int) -> Reading:
        node, pid = f"n{rank // 8}", 100 + rank % 8
        origin = Origin(source=f"{rank}.log", line=1, rank=rank, node=node)
        record = ProcessRecord(rank=rank, host=node, pid=pid, node=node, comms=(comm(rank, 4096),))
        return Reading(
            source=SourceRecord(path=f"{rank}.log", kind="log", num_understood=1, first_time_s=1.0, last_time_s=2.0),
            events=[event("torch.watchdog_timeout", source=f"{rank}.log", rank=rank, node=node, time_s=2.0)],
            processes=[record],
            deaths=[Death(kind="exit", origin=origin, rank=rank, pid=pid, host=node, time_s=2.0)],
        )

    readings = [of(rank) for rank in range(4096)]
    found, took_s = timed(lambda: assemble(readings), enough_s=8)
    assert took_s < 8
    assert (len(found.deaths), len(found.node_numbers), found.expected_ranks) == (4096, 512, 4096)


def test_the_groups_of_dumps_tell_the_size_of_the_world_but_no_impossible_one() -> None:
    """Gloo's record of the group of all ranks has no name, and no call is in it; a file may claim anything."""
    for members, size in (((0, 1, 2), 3), ((0, 1, 99_999_999), 0)):
        made = dump([entry(1)], groups={("0", "default_pg"): (), ("", ""): members})
        one = replace(reading("a", 0.0, 1.0), dumps=[loaded(made)])
        assert assemble([one]).expected_ranks == size


def test_calls_that_stay_the_same_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running job is judged several times a second."""
    compared: list[OperationsJoin] = []
    genuine = calls.compare_operations

    def counted(found: OperationsJoin) -> calls.Compared:
        compared.append(found)
        return genuine(found)

    monkeypatch.setattr(calls, "compare_operations", counted)

    def readings(num: int) -> list[Reading]:
        """As they are read anew from each answer."""
        texts = [log(rank, LOOP[: num - rank]) for rank in (0, 1)]
        records = [read_nccl_record(io.BytesIO(t), "x", ReaderContext(), size_bytes=len(t)) for t in texts]
        return [
            Reading(source=SourceRecord(path=str(at), kind="log"), processes=r.processes, op_streams=r.op_streams)
            for at, r in enumerate(records)
        ]

    logged = calls.LoggedCalls()
    for num in (10, 10, 12, 12):
        [progress] = assemble(readings(num), logged=logged).progress
        assert {r: p.enqueued for r, p in progress.positions.items()} == {0: num, 1: num - 1}
    assert len(compared) == 2


def test_tables_of_nccl_tests_end_no_job_that_makes_steps_behind_them() -> None:
    """Many job scripts test the network first."""
    row = BenchRow(size_bytes=8, time_us=1.0, algbw_gb_per_s=1.0, busbw_gb_per_s=1.0, num_wrong=0)
    origin = Origin(source="job.out", line=288)
    bench = BenchRun(origin=origin, operation="all_reduce", rows=(row,), avg_busbw_gb_per_s=1.0, num_ranks=4)

    def well(progress_line: int) -> frozenset[int]:
        end = Closing(origin=replace(origin, line=665), kind=ClosingKind.OPEN, progress_line=progress_line)
        return assemble([reading("job.out", 0.0, 9.0, benches=[bench], closing=end)]).ended_well

    assert well(66) == {0, 1, 2, 3}
    assert well(308) == set()
