"""Inspector files, and who came late by them."""

import io
import json
import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from allready.evidence.inspector import MAX_KEPT, inspector_lags, is_inspector, operation_number, read_inspector
from allready.evidence.reading import InspectorSummary


def record(
    rank: int, number: int, time_us: float, *, name: str = "AllReduce", group: str = "0xabc", size: int = 4
) -> str:
    return json.dumps(
        {
            "header": {"id": group, "rank": rank, "n_ranks": size, "nnodes": 1},
            "metadata": {
                "inspector_output_format_version": "v4.0",
                "dump_timestamp_us": 1748030377748202 + number,
                "hostname": f"gpu{rank // 2}",
                "pid": 100 + rank,
            },
            "coll_perf": {
                "coll": name,
                "coll_sn": number,
                "coll_msg_size_bytes": 1 << 20,
                "coll_exec_time_us": time_us,
                "coll_algobw_gbs": 200.0,
                "coll_busbw_gbs": 300.0,
            },
        }
    )


def summary(
    rank: int, times_us: list[float], *, group: str = "0xabc", size: int = 4, pid: int | None = None
) -> InspectorSummary:
    text = "\n".join(record(rank, i, t, group=group, size=size) for i, t in enumerate(times_us))
    (found,) = read_inspector(text.encode(), f"gpu-{rank}.log").inspections
    found.pid = pid if pid is not None else found.pid
    return found


def test_a_file_has_one_summary_for_rank_and_communicator() -> None:
    text = "\n".join(
        [
            record(1, 0, 100),
            record(1, 1, 120),
            record(1, 0, 50, name="AllGather"),
            record(0, 0, 9, group="0xdef", size=2),
        ]
    )
    assert is_inspector(text.encode())
    reading = read_inspector(text.encode(), "gpu0-pid101.log")
    first, second = reading.inspections
    assert (first.rank, first.num_ranks, first.group, first.host, first.pid) == (1, 4, "0xabc", "gpu0", 101)
    assert first.num_operations == 3
    assert first.durations_s[operation_number("AllReduce", 1)] == 120e-6
    assert first.durations_s[operation_number("AllGather", 0)] == 50e-6
    assert first.busbw_gb_per_s == [300.0] * 3
    assert second.group == "0xdef"
    assert reading.source.first_time_s == 1748030377.748202
    assert reading.source.problem is None


def test_a_last_line_that_is_cut_off_is_told_and_the_rest_is_kept() -> None:
    text = record(0, 0, 10) + "\n" + record(0, 1, 10)[:90]
    reading = read_inspector(text.encode(), "x")
    assert reading.inspections[0].num_operations == 1
    assert reading.source.problem == "the last object is cut off"
    assert reading.source.num_unknown == 1


def test_pretty_printed_objects_are_read_too() -> None:
    text = "\n".join(json.dumps(json.loads(record(0, i, 10)), indent=2) for i in range(3))
    assert is_inspector(text.encode())
    assert read_inspector(io.BytesIO(text.encode()), "x").inspections[0].num_operations == 3


def test_an_object_that_was_never_finished_does_not_swallow_the_next() -> None:
    text = record(0, 0, 10)[:90] + "\n" + record(0, 1, 10) + "\n" + record(0, 2, 10)
    reading = read_inspector(text.encode(), "x")
    assert reading.inspections[0].num_operations == 2


def test_sends_and_receives_count_but_have_no_common_number() -> None:
    item = json.loads(record(0, 0, 10))
    del item["coll_perf"]
    item["p2p_perf"] = {"p2p": "Send", "p2p_sn": 3, "p2p_peer": 1, "p2p_exec_time_us": 4, "p2p_busbw_gbs": 20.0}
    (found,) = read_inspector(json.dumps(item).encode(), "x").inspections
    assert (found.num_operations, found.durations_s, found.busbw_gb_per_s) == (1, {}, [20.0])


def test_memory_is_bounded_to_the_last_operations() -> None:
    text = "\n".join(record(0, i, 10) for i in range(MAX_KEPT + 200))
    (found,) = read_inspector(text.encode(), "x").inspections
    assert len(found.durations_s) == MAX_KEPT == len(found.busbw_gb_per_s)
    assert operation_number("AllReduce", MAX_KEPT + 199) in found.durations_s
    assert found.num_operations == MAX_KEPT + 200


def test_prometheus_files_give_bandwidths_only() -> None:
    label = '{version="v5.1",slurm_job_id="unknown",node="n1",gpu="GPU0",comm_name="DP Group 0",n_nodes="1",nranks="4"'
    label += ',collective="AllReduce"}'
    text = f"# HELP x\nnccl_bus_bandwidth_gbs{label} 678.263\nnccl_collective_exec_time_microseconds{label} 9498.47\n"
    assert is_inspector(text.encode())
    reading = read_inspector(text.encode(), "x.prom")
    (found,) = reading.inspections
    assert found.busbw_gb_per_s == [678.263]
    assert not found.durations_s
    assert reading.source.num_unknown == 0
    assert inspector_lags([found, found]) == []


def test_the_straggler_is_the_rank_whose_operations_are_short() -> None:
    times = {0: [5000.0] * 20, 1: [5010.0] * 20, 2: [800.0] * 20, 3: [4990.0] * 20}
    (lag,) = inspector_lags([summary(r, t) for r, t in times.items()])
    assert lag.num_operations == 20
    assert lag.last_share == {0: 0.0, 1: 0.0, 2: 1.0, 3: 0.0}
    assert round(lag.median_late_s[2], 6) == 0.00421
    assert max(lag.median_late_s, key=lambda r: lag.median_late_s[r]) == 2


def test_equal_ranks_have_nobody_last() -> None:
    (lag,) = inspector_lags([summary(r, [1000.0 + r] * 10) for r in range(4)])
    assert set(lag.last_share.values()) == {0.0}


def test_few_common_operations_say_nothing() -> None:
    assert inspector_lags([summary(r, [1000.0] * 3) for r in range(4)]) == []
    assert inspector_lags([summary(0, [1000.0] * 30)]) == []
    assert inspector_lags([]) == []


def test_ranks_of_a_small_communicator_are_told_as_global_ones() -> None:
    whole = [summary(r, [1000.0] * 10) for r in range(4)]
    small = [summary(r, [1000.0 if r else 10.0] * 10, group="0xdef", size=2, pid=102 + r) for r in range(2)]
    for s in small:
        s.host = "gpu1"
    lags = {lag.group: lag for lag in inspector_lags(whole + small)}
    assert lags["0xdef AllReduce"].last_share == {2: 1.0, 3: 0.0}


def test_small_communicators_of_which_none_is_the_whole_job_accuse_nobody() -> None:
    a = [summary(r, [1000.0 if r else 10.0] * 10, group="0xa", size=2, pid=10 + r) for r in range(2)]
    b = [summary(r, [1000.0] * 10, group="0xb", size=2, pid=20 + r) for r in range(2)]
    assert inspector_lags(a + b) == []


def test_other_json_lines_are_not_the_inspectors() -> None:
    assert not is_inspector(b'{"header": {"id": 1}}')
    assert not is_inspector(b'{"message": "hello"}\n')
    assert not is_inspector(b"")


LINES = [record(0, 1, 5), record(0, 1, 5)[:40], "{", "}", '{"header"', "[]", '{"header": {"id": "a"}}']
FIELDS = [
    "id", "rank", "n_ranks", "coll", "coll_sn", "coll_exec_time_us", "pid", "coll_busbw_gbs", "dump_timestamp_us",
    "hostname",
]  # fmt: skip
VALUES = st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.booleans()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(LINES) | st.text(max_size=20), max_size=20))
def test_lines_in_any_order_are_survived(lines: list[str]) -> None:
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    is_inspector(data)
    reading = pickle.loads(pickle.dumps(read_inspector(data, "fuzz")))
    assert reading.source.size_bytes == len(data)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["header", "metadata", "coll_perf", "p2p_perf"]),
        st.dictionaries(st.sampled_from(FIELDS), VALUES),
    )
)
def test_values_of_any_type_are_survived(item: dict[str, object]) -> None:
    read_inspector(json.dumps(item).encode(), "fuzz")


def test_one_endless_line_does_not_fill_memory() -> None:
    reading = read_inspector(io.BytesIO(b'{"header": "' + b"x" * (5 << 20)), "x")
    assert not reading.inspections
    assert reading.source.problem is not None


def test_each_kind_is_told_by_itself() -> None:
    """In a step of two collectives the second finds all ranks there; together they would tell of no rank."""
    found: list[InspectorSummary] = []
    for rank in range(4):
        first = [record(rank, i, 28.0 if rank == 1 else 30_000.0) for i in range(20)]
        second = [record(rank, i, 25.0, name="AllGather") for i in range(20)]
        text = "\n".join(line for both in zip(first, second, strict=True) for line in both)
        found += read_inspector(text.encode(), f"gpu-{rank}.log").inspections
    lags = {lag.group: lag for lag in inspector_lags(found)}
    assert set(lags) == {"0xabc AllReduce", "0xabc AllGather"}
    assert lags["0xabc AllReduce"].last_share[1] == 1.0
    assert set(lags["0xabc AllGather"].last_share.values()) == {0.0}


def test_the_short_time_of_a_broadcast_s_root_says_nothing() -> None:
    found: list[InspectorSummary] = []
    for rank in range(4):
        text = "\n".join(record(rank, i, 900.0 if rank else 3.0, name="Broadcast") for i in range(20))
        found += read_inspector(text.encode(), f"gpu-{rank}.log").inspections
    assert inspector_lags(found) == []
