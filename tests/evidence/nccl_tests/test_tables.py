"""Tables of nccl-tests in every layout they have had."""

import pickle
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from allready.evidence.nccl_tests import read_nccl_tests
from allready.model import BenchRun
from tests.cases import cases

NEW = """# nccl-tests version 2.17.1 nccl-headers=22707 nccl-library=22707
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid 4711 on     gpu17 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 4712 on     gpu17 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    24.10    0.00    0.00       0    23.80    0.00    0.00       0
   134217728      33554432     float     sum      -1    980.1  136.94  136.94       0    979.9  136.97  136.97       3
# Out of bounds values : 3 FAILED
# Avg bus bandwidth    : 68.4782
#
# Collective test concluded: all_reduce_perf
"""


def only(text: str) -> BenchRun:
    (bench,) = read_nccl_tests(text.encode(), "bench.txt").benches
    return bench


def test_a_table_of_today_has_rows_averages_and_ranks() -> None:
    reading = read_nccl_tests(NEW.encode(), "bench.txt")
    (bench,) = reading.benches
    assert bench.operation == "all_reduce"
    assert bench.rows == ((8, 24.10, 0.0, 0.0, 0), (134217728, 980.1, 136.94, 136.94, 0))
    assert bench.in_place_rows[1] == (134217728, 979.9, 136.97, 136.97, 3)
    assert bench.avg_busbw_gb_per_s == 68.4782
    assert bench.out_of_bounds == 3
    assert bench.origin.line == 10
    first = reading.processes[0]
    assert (first.rank, first.pid, first.host, first.cuda_dev, first.bus_id) == (0, 4711, "gpu17", 0, "0000:1b:00")
    assert first.versions == {"nccl": "2.27.7", "gpu": "NVIDIA H100 80GB HBM3"}
    assert reading.source.num_unknown == 0
    assert reading.source.problem is None


@cases("prefix", ["[1,0]<stdout>:", "0: ", " 0: ", "2026-11-20T10:00:00.123456789Z ", "[default0]:"])
def test_prefixes_of_launchers_are_taken_off(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in NEW.splitlines())
    assert only(text).rows == only(NEW).rows


def test_rows_in_pieces_between_lines_of_nccl_are_put_together() -> None:
    nccl = "gpu17:4711:4711 [1] NCCL INFO AllReduce: opCount 0 sendbuff 0x7 recvbuff 0x9 count 2 datatype 7 op 0\n"
    broken = re.sub(r"(float +sum +-1)( +\S+ +\S+ +\S+ +\d)( .*)\n", rf"\1{nccl}\2{nccl}{nccl}\3\n", NEW)
    assert broken.count("NCCL INFO") == 6
    assert only(broken).rows == only(NEW).rows
    assert only(broken).in_place_rows == only(NEW).in_place_rows


def test_the_old_layout_with_an_error_column_has_no_number_of_wrong_values() -> None:
    bench = only("""# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#   Rank  0 Pid  26040 on     gpu17 device  0 [0x07] Tesla V100-SXM2-32GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2   float     sum    36.12    0.00    0.00  1e-07    35.11    0.00    0.00  1e-07
    33554432       8388608   float     sum    700.1   47.93   83.88    N/A    699.0   48.00   84.01    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 41.9
""")
    assert [r[4] for r in bench.rows] == [-1, -1]
    assert bench.rows[1][:4] == (33554432, 700.1, 47.93, 83.88)
    assert bench.out_of_bounds == 0


def test_per_iteration_columns_and_time_stamps_do_not_shift_the_numbers() -> None:
    head = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%"
    head += "  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%  timestamp\n"
    row = " 1024  256  float  sum  -1  10.0  0.1  0.2  0  9.0  12.0  11.9  4.5"
    row += "  11.0  0.3  0.4  0  9.0  12.0  11.9  4.5  2026-11-20 10:00:00\n"
    bench = only("# nThread 1 nGpus 8 minBytes 8\n" + head + row)
    assert bench.rows == ((1024, 10.0, 0.1, 0.2, 0),)
    assert bench.in_place_rows == ((1024, 11.0, 0.3, 0.4, 0),)


def test_a_row_with_one_half_only_is_in_place() -> None:
    text = NEW.replace(
        "134217728      33554432     float     sum      -1    980.1  136.94  136.94       0",
        "134217728      33554432     float     sum      -1                                 ",
    )
    bench = only(text)
    assert len(bench.rows) == 1
    assert len(bench.in_place_rows) == 2


def test_a_run_that_was_killed_has_what_it_printed() -> None:
    reading = read_nccl_tests(NEW[: NEW.index("# Out of bounds")].encode(), "x")
    assert len(reading.benches[0].rows) == 2
    assert reading.benches[0].avg_busbw_gb_per_s is None
    assert reading.source.problem == "the last table has no end"


def test_two_runs_in_one_file_are_two_tables() -> None:
    second = NEW.replace("all_reduce_perf", "alltoall_perf").replace("version 2.17.1", "version 2.17.2")
    reading = read_nccl_tests((NEW + second).encode(), "x")
    assert [b.operation for b in reading.benches] == ["all_reduce", "all_to_all"]
    assert len(reading.processes) == 4


def test_a_run_that_began_behind_another_and_shows_no_table_is_no_good_end() -> None:
    second = NEW.replace("all_reduce_perf", "alltoall_perf")
    cut = "\n".join(second.splitlines()[:5])
    for text in (NEW + cut, NEW + cut.splitlines()[0] + "\n" + cut.splitlines()[1]):
        done, begun = read_nccl_tests(text.encode(), "x").benches
        assert (done.operation, done.avg_busbw_gb_per_s) == ("all_reduce", 68.4782)
        assert (begun.operation, begun.rows, begun.is_good) == ("all_to_all", (), False)
    assert len(read_nccl_tests((NEW + "\n").encode(), "x").benches) == 1


def test_a_command_line_above_names_the_operation() -> None:
    body = "\n".join(x for x in NEW.splitlines() if "_perf" not in x)
    assert only("+ mpirun -np 2 ./build/reduce_scatter_perf -b 8\n" + body).operation == "reduce_scatter"


def test_without_any_name_the_factor_of_the_bandwidths_tells_where_it_can() -> None:
    body = "\n".join(x for x in NEW.splitlines() if "_perf" not in x)
    assert only(body).operation == "all_reduce"
    gather = body.replace("  sum      -1", " none      -1").replace("136.94  136.94", "136.94  68.47")
    assert only(gather).operation == ""
    reduce = body.replace("  sum      -1", "  sum       0")
    assert only(reduce).operation == "reduce"
    small = "\n".join(x for x in body.splitlines() if "134217728 " not in x or x.startswith("#"))
    assert only(small).operation == ""


def test_lines_of_nccl_between_the_rows_are_left_alone() -> None:
    lines = NEW.splitlines()
    lines[11:11] = ["gpu17:4711:4711 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>", "12 apples", "8 2 float"]
    reading = read_nccl_tests("\n".join(lines).encode(), "x")
    assert len(reading.benches[0].rows) == 2
    assert reading.source.num_unknown == 3


def test_other_text_is_no_table() -> None:
    assert not read_nccl_tests(b"1 2 3 4 5 6 7 8 9 10 11 12 13\n", "x").benches


LINES = [*NEW.splitlines(), "#  size count type time algbw busbw", "#  size  count  type  algbw"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(LINES) | st.text(alphabet="0123456789 .#-eNA/", max_size=60), max_size=30))
def test_lines_in_any_order_are_survived(lines: list[str]) -> None:
    data = "\n".join(lines).encode()
    pickle.loads(pickle.dumps(read_nccl_tests(data, "fuzz")))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_survived(data: bytes) -> None:
    read_nccl_tests(data, "fuzz")
