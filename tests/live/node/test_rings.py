"""Rings of any kind: what is new is reported once, in order, and what a stranger wrote breaks nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allready.evidence.flight.columns import columns_of
from allready.live.digests import UNKNOWN, call_of, differ, root_of, with_root
from allready.live.node.rings import MAX_OPERATIONS, RingPace

START_NS = 1_795_000_000_000_000_000


def entry(seq: int, **changes: Any) -> dict[str, Any]:
    return {
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "record_id": seq,
        "is_p2p": False,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[4]],
        "output_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "retired": True,
        "state": "scheduled",
        "time_created_ns": START_NS + seq * 1_000_000_000,
        "time_discovered_completed_ns": 0,
    } | changes


def ring(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"version": "2.10", "entries": list(entries), "pg_config": {}}).encode()


def test_only_what_is_new_is_told() -> None:
    pace = RingPace(3)
    (first,) = pace.take(ring(entry(1), entry(2)))
    assert (first.rank, first.group, first.seqs, first.completed_s) == (3, "0", (1, 2), ())
    assert pace.take(ring(entry(1), entry(2))) == ()
    (second,) = pace.take(ring(entry(2), entry(3), entry(4)))
    assert second.seqs == (3, 4)
    assert second.created_s[1] - second.created_s[0] == 1.0
    assert pace.period_s() == 1.0
    assert pace.num_operations() == 4


def test_sends_and_receives_are_left_out() -> None:
    p2p = entry(2, is_p2p=True, profiling_name="nccl:send 0->1")
    named = entry(3, profiling_name="nccl:recv 0<-1", retired=True)
    (sample,) = RingPace(0).take(ring(entry(1), p2p, named, entry(4)))
    assert sample.seqs == (1, 4)


def test_an_operation_that_has_not_completed_waits_until_it_has() -> None:
    def nccl(seq: int, completed_ns: int = 0) -> dict[str, Any]:
        return entry(
            seq,
            profiling_name="nccl:all_reduce",
            retired=completed_ns > 0,
            state="started",
            time_discovered_completed_ns=completed_ns,
        )

    pace = RingPace(0)
    (first,) = pace.take(ring(nccl(1, START_NS + 1_500_000_000), nccl(2), nccl(3)))
    assert first.seqs == (1,)
    assert first.completed_s == ((START_NS + 1_500_000_000) / 1e9,)
    (second,) = pace.take(ring(nccl(1, START_NS), nccl(2, START_NS + 1), nccl(3, START_NS + 1)))
    assert second.seqs == (2, 3)


def test_a_call_on_many_tensors_is_one_operation() -> None:
    parts = [entry(5, record_id=10 + i, input_sizes=[[4]], output_sizes=[[4]]) for i in range(3)]
    (sample,) = RingPace(0).take(ring(*parts, entry(6)))
    assert sample.seqs == (5, 6)
    assert sample.size_bytes == (48, 16)
    assert sample.digests[0] != sample.digests[1]


def test_digests_tell_sizes_and_kinds_apart_and_not_shapes() -> None:
    def digest(**changes: Any) -> int:
        (sample,) = RingPace(0).take(ring(entry(1, **changes)))
        return sample.digests[0]

    assert digest() == digest(input_sizes=[[2, 2]], output_sizes=[[2, 2]])
    assert digest() != digest(input_sizes=[[5]], output_sizes=[[5]])
    assert digest() != digest(input_dtypes=["Half"], output_dtypes=["Half"])
    assert digest() != digest(profiling_name="gloo:broadcast")


def test_of_very_many_the_newest_are_told() -> None:
    (sample,) = RingPace(0).take(ring(*(entry(n) for n in range(1, 1001))))
    assert len(sample.seqs) == MAX_OPERATIONS
    assert sample.seqs[-1] == 1000


def test_groups_have_samples_of_their_own() -> None:
    samples = RingPace(0).take(ring(entry(1), entry(1, process_group=["7", "TP"]), entry(2)))
    assert {s.group: s.seqs for s in samples} == {"0": (1, 2), "7": (1,)}


def test_a_group_that_is_formed_again_in_place_begins_a_generation() -> None:
    """torch 2.15's `_reconfigure`: the same group in the recorder's numbers, and its operations are counted from 1."""

    def at(record: int, seq: int, **changes: Any) -> dict[str, Any]:
        return entry(seq, record_id=record, time_created_ns=START_NS + record * 10**9, **changes)

    pace = RingPace(0)
    (first,) = pace.take(ring(at(1, 1), at(2, 2), at(3, 3)))
    assert (first.seqs, first.generation) == ((1, 2, 3), 0)
    (second,) = pace.take(ring(at(2, 2), at(3, 3), at(4, 4), at(5, 1), at(6, 2)))
    assert (second.seqs, second.generation) == ((1, 2), 1)  # what the others reported of the one before is over as well
    (third,) = pace.take(ring(at(6, 2), at(7, 3), at(8, 1), at(9, 1), at(10, 2)))
    assert (third.seqs, third.generation) == ((1, 2), 2)
    (made_again,) = pace.take(ring(at(10, 2), at(11, 1, pg_id=1), at(12, 2, pg_id=1)))
    assert (made_again.seqs, made_again.generation) == ((1, 2), 3)


@pytest.mark.torch
@pytest.mark.newest
def test_real_rings_of_a_group_that_is_formed_again_are_read_as_dumps_are() -> None:
    """From before 2.14 torch cannot, and nothing is reported."""
    rank = Path(__file__).with_name("reconfigured.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, rank], env=environment, capture_output=True, timeout=120, check=True)
    rings = done.stdout.splitlines()
    import torch.distributed as dist

    assert len(rings) == (3 if hasattr(dist, "_reconfigure") else 0)
    pace = RingPace(0)
    told = [sample for found in rings for sample in pace.take(found)]
    told += [sample for found in rings[-1:] for sample in RingPace(0).take(found)]  # who comes late
    assert [(s.seqs, s.generation) for s in told] == [
        ((1, 2, 3, 4), 0), ((1, 2, 3), 1), ((1, 2), 2), ((1, 2), 2)
    ][: len(told)]  # fmt: skip
    for found, last in zip(rings, (4, 3, 2), strict=False):
        columns = columns_of(json.loads(found)["entries"])
        assert [list(one.seq) for one in columns.rings.values()] == [list(range(1, last + 1))]


def test_a_damaged_ring_is_a_problem_and_the_next_one_is_read() -> None:
    pace = RingPace(0)
    assert pace.take(ring(entry(1))[:-9]) == ()
    assert pace.problem is not None
    assert pace.take(ring(entry(1)))[0].seqs == (1,)
    assert pace.problem is None


def test_entries_without_numbers_or_times_are_passed_over() -> None:
    odd = [entry(1, collective_seq_id=None), entry(2, time_created_ns=None), entry(3, time_created_ns=-5), entry(-4)]
    (sample,) = RingPace(0).take(ring(*odd, entry(9)))
    assert sample.seqs == (9,)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(entry(1))), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.thorough
@settings(max_examples=50)
@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(entry(1), json_values)), max_size=4))
def test_any_json_is_read_without_an_error(entries: list[dict[str, Any]]) -> None:
    pace = RingPace(0)
    for sample in pace.take(ring(entry(1), *entries)):
        assert len(sample.seqs) == len(sample.created_s) == len(sample.digests) == len(sample.size_bytes)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    RingPace(0).take(data)


def compact(entries: list[dict[str, Any]]) -> bytes:
    """As torch writes it."""
    more = {"nccl_comm_state": {}, "pg_config": {"0": {"desc": "", "ranks": "[0,1]"}}, "pg_status": {"0": {}}}
    return json.dumps({"comm_lib_version": "", "entries": entries, **more}, separators=(",", ":")).encode()


NAMES = st.sampled_from(["0", "1", 'a,{"b', "x,{", '"record_id":3,', "组"])
OPERATION = st.fixed_dictionaries(
    {
        "process_group": st.tuples(NAMES, st.sampled_from(["", ',{"', "}],"])).map(list),
        "profiling_name": st.sampled_from(["nccl:all_reduce", "gloo:all_reduce", "nccl:send 0->1", "nccl:coalesced"]),
        "input_sizes": st.sampled_from([[], [[4]], [[3, 3], [2]]]),
        "is_late": st.booleans(),
    }
)


@pytest.mark.thorough
@given(
    operations=st.lists(OPERATION, max_size=30),
    cuts=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6),
    size=st.integers(1, 30),
)
@settings(max_examples=300, deadline=None)
def test_what_is_read_from_where_it_went_on_is_what_the_whole_ring_tells(
    operations: list[dict[str, Any]], cuts: list[tuple[int, int]], size: int
) -> None:
    """Rings of a growing number of operations, of which more and more have completed."""
    entries = []
    counts: dict[str, int] = {}
    for number, one in enumerate(operations):
        group = one["process_group"][0]
        counts[group] = counts.get(group, 0) + 1
        changes = {k: v for k, v in one.items() if k != "is_late"} | {"record_id": number, "pg_id": hash(group) % 5}
        entries.append(entry(number, **changes) | {"collective_seq_id": counts[group]})
    going_on, whole = RingPace(0), RingPace(0)
    for end, done in sorted(cuts):
        shown = [
            e | {"retired": at < done and not (operations[at]["is_late"] and at + 4 > end)}
            for at, e in enumerate(entries[:end])
        ][-size:]
        whole._mark = b""
        found, wanted = ({sample.group: sample for sample in p.take(compact(shown))} for p in (going_on, whole))
        assert found == wanted
        assert (going_on.problem, going_on.num_operations()) == (None, whole.num_operations())


def test_a_ring_that_is_mostly_known_is_not_read_as_a_whole() -> None:
    pace = RingPace(0)
    entries = [entry(n) for n in range(1, 101)]
    assert pace.take(compact(entries))
    assert pace._entries(compact(entries)).entries == []
    more = compact([*entries[2:], entry(101), entry(102)])
    assert [e.record_id for e in pace._entries(more).entries] == [101, 102]
    (sample,) = pace.take(more)
    assert sample.seqs == (101, 102)
    (sample,) = pace.take(compact([entry(n) for n in range(200, 203)]))  # another part altogether
    assert sample.seqs == (200, 201, 202)


def test_roots_stand_beside_the_digest() -> None:
    def told(*rows: list[Any]) -> bytes:
        entries = [entry(1, profiling_name="gloo:broadcast"), entry(2), entry(3, profiling_name="gloo:broadcast")]
        return json.dumps({"entries": entries, "arguments": list(rows)}).encode()

    (plain,) = RingPace(0).take(told())
    rows = [["0", 1, "broadcast", 5, None, None], ["0", 2, "broadcast", 5, None, None], ["1", 3, "broadcast", 5, 0, 0]]
    (rooted,) = RingPace(0).take(told(*rows))
    assert [root_of(d) for d in rooted.digests] == [5, None, None]
    assert [call_of(d) for d in rooted.digests] == list(plain.digests)
    assert differ(rooted.digests[0], with_root(plain.digests[0], 4))
    assert not differ(rooted.digests[0], plain.digests[0])
    assert with_root(UNKNOWN, 3) == UNKNOWN


def test_roots_are_read_with_what_is_new_of_a_ring() -> None:
    def told(last: int) -> bytes:
        entries = [entry(i, profiling_name="gloo:broadcast") for i in range(1, last + 1)]
        rows = [["0", i, "broadcast", i, None, None] for i in range(1, last + 1)]
        return json.dumps({"version": "2.10", "entries": entries, "arguments": rows}, separators=(",", ":")).encode()

    pace = RingPace(0)
    assert [[root_of(d) for d in s.digests] for n in (2, 4) for s in pace.take(told(n))] == [[1, 2], [3, 4]]
