"""Clock offsets from causality: made-up dumps and logs of two nodes whose clocks differ."""

import json

from msgspec.structs import replace

from allready.evidence.flight.reader import read_dump
from allready.evidence.join.clocks import clock_offsets
from allready.evidence.reading import FlightDump
from allready.model import CommRecord, ProcessRecord

NODE_OF = {0: "a", 1: "b"}
ORDER = {"a": 0, "b": 1}


def dump(rank: int, offset_s: float, late_s: float = 0.0) -> FlightDump:
    """60 operations, one every 0.1 s, that complete 5 ms after the last rank entered."""
    entries = []
    for i in range(60):
        entered = 1000.0 + 0.1 * i
        entries.append(
            {
                "record_id": i,
                "pg_id": 0,
                "process_group": ("0", "default_pg"),
                "collective_seq_id": i + 1,
                "p2p_seq_id": 0,
                "op_id": i + 1,
                "profiling_name": "nccl:all_reduce",
                "input_sizes": [[4]],
                "input_dtypes": ["Float"],
                "output_sizes": [[4]],
                "output_dtypes": ["Float"],
                "state": "completed",
                "retired": True,
                "is_p2p": False,
                "time_created_ns": round((entered + late_s + offset_s) * 1e9),
                "timeout_ms": 600000,
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": round((entered + 0.005 + offset_s) * 1e9),
                "frames": [],
            }
        )
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    text = json.dumps({"version": "2.10", "pg_config": config, "entries": entries})
    [found] = read_dump(text.encode(), f"fr_{rank}", name_hint=f"fr_{rank}").dumps
    return replace(found, rank=rank)


def test_a_clock_that_is_three_seconds_ahead_is_found_within_its_uncertainty() -> None:
    [found] = clock_offsets([dump(0, 0.0), dump(1, 3.0)], [], NODE_OF, ORDER)
    assert found.node == "b"
    assert abs(found.offset_s - 3.0) <= found.uncertainty_s <= 0.006
    assert found.num_matches == 60


def test_a_rank_that_is_late_makes_the_answer_no_more_certain_than_it_is() -> None:
    [found] = clock_offsets([dump(0, 0.0), dump(1, -2.0, late_s=0.004)], [], NODE_OF, ORDER)
    assert abs(found.offset_s + 2.0) <= found.uncertainty_s


def test_ranks_of_one_node_have_one_clock() -> None:
    assert clock_offsets([dump(0, 0.0), dump(1, 3.0)], [], {0: "a", 1: "a"}, ORDER) == ()


def test_init_lines_with_times_bound_it_too() -> None:
    def process(rank: int, offset_s: float) -> ProcessRecord:
        comm = CommRecord(
            comm="0x1", rank=rank, nranks=2, comm_id="0xabc", started_s=10.0 + offset_s, completed_s=12.0 + offset_s
        )
        return ProcessRecord(rank=rank, comms=(comm,))

    [found] = clock_offsets([], [process(0, 0.0), process(1, 60.0)], NODE_OF, ORDER)
    assert (found.offset_s, found.uncertainty_s) == (60.0, 2.0)


def test_without_a_bound_in_both_directions_nothing_is_said() -> None:
    never = ProcessRecord(
        rank=1, comms=(CommRecord(comm="0x1", rank=1, nranks=2, comm_id="0xabc", started_s=70.0, completed_s=None),)
    )
    done = ProcessRecord(
        rank=0, comms=(CommRecord(comm="0x1", rank=0, nranks=2, comm_id="0xabc", started_s=10.0, completed_s=12.0),)
    )
    assert clock_offsets([], [done, never], NODE_OF, ORDER) == ()
    assert clock_offsets([], [], NODE_OF, ORDER) == ()
