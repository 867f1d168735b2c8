"""Events: who said it, when, what belongs to it, and how often."""

from collections.abc import Iterator

import pytest

from allready.evidence.clock import dated
from allready.evidence.lines.model import RawLine, Repeat, Scanned
from allready.evidence.log import interpret, read_lines
from allready.evidence.log.events import MAX_KEPT
from allready.model import Event
from allready.model.fill import said
from tests.cases import cases
from tests.evidence.log.reading import MTIME_S, read, use_signatures

PATTERNS = {
    "torch.watchdog": ("Watchdog caught", r"Watchdog caught .*SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)"),
    "torch.async_exception": ("async exception", r"raised the following async exception: (?P<what>.*)"),
    "torch.backend_error": ("DistBackendError", r"DistBackendError: (?P<what>.*)"),
    "torch.retry": ("retrying", r"retrying \((?P<n>\d+)\)"),
    "nccl.no_interface": ("no socket interface found", r"no socket interface found"),
}
WATCHDOG = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=ALLREDUCE) ran for 12040 ms"


@pytest.fixture(autouse=True, scope="module")
def _signatures(_no_signatures: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use_signatures(patch, PATTERNS)
        yield


def event(text: str, source: str = "out.log") -> Event:
    events = read(text, source).events
    assert len(events) == 1, events
    return events[0]


def test_an_event_says_who_when_and_what() -> None:
    found = event("\n[rank6]:[E1120 11:51:03.500000000 ProcessGroupNCCL.cpp:689] [Rank 2] " + WATCHDOG.format(64))
    assert (found.signature, found.values) == ("torch.watchdog", {"seq": "64", "op": "ALLREDUCE"})
    assert (found.origin.rank, found.origin.line, found.origin.source) == (6, 1, "out.log")
    assert found.time_s == dated(2026, 11, 20, 11, 51, 3, 0.5)
    assert found.text.startswith("[Rank 2] Watchdog")


def test_equal_events_are_counted_once() -> None:
    line = "[rank6]:[E1120 11:51:{:02}.000000000 x.cpp:1] [Rank 2] " + WATCHDOG.format(64)
    found = event("\n".join(line.format(second) for second in range(50)))
    assert found.count == 50
    assert (found.time_s, found.last_time_s) == (dated(2026, 11, 20, 11, 51, 0), dated(2026, 11, 20, 11, 51, 49))


def test_other_numbers_are_kept_up_to_a_bound() -> None:
    events = read("\n".join(f"[rank1]: connect failed, retrying ({n})" for n in range(500))).events
    assert len(events) == MAX_KEPT
    assert sum(e.count for e in events) == 500
    assert [e.values["n"] for e in events[:3]] == ["0", "1", "2"]


def test_other_processes_are_other_events() -> None:
    events = read("\n".join(f"[rank{n % 8}]: connect failed, retrying (3)" for n in range(80))).events
    assert sorted((e.origin.rank or 0, e.count) for e in events) == [(n, 10) for n in range(8)]


def test_the_last_error_belongs_to_the_exception() -> None:
    found = read(
        """
[rank0]:[E1120 11:51:27.3 ProcessGroupNCCL.cpp:612] WorkNCCL(SeqNum=7) raised the following async exception: NCCL error
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
Last error:
socketProgress: Connection closed by remote peer node-b<41000>
Exception raised from checkForNCCLErrorsInternal at /pytorch/x.cpp:2770 (most recent call first):
frame #0: c10::Error::Error() + 0x9d (0x7f42e4f7305d in libc10.so)
"""
    ).events[0]
    assert found.values["last_error"] == "socketProgress: Connection closed by remote peer node-b<41000>"
    assert len(found.extra) == 3


def test_the_lines_of_a_traceback_belong_to_its_exception() -> None:
    reading = read(
        """
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/user/train.py", line 9, in <module>
[rank3]:     dist.all_reduce(x)
[rank3]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1
[rank3]: Last error:
[rank3]: Bootstrap : no socket interface found
"""
    )
    first, second = reading.events
    assert (first.signature, second.signature) == ("torch.backend_error", "nccl.no_interface")
    assert first.values["last_error"] == "Bootstrap : no socket interface found"
    assert first.values["site"] == "/home/user/train.py:9 <module>"
    assert any("all_reduce" in line for line in first.extra)
    assert (second.origin.rank, reading.source.num_unknown) == (3, 0)


def test_the_stack_of_the_failed_collective_belongs_to_the_watchdog_of_its_rank() -> None:
    events = read(
        f"""
[rank0]:[E1120 11:51:03.5 ProcessGroupNCCL.cpp:689] [Rank 0] {WATCHDOG.format(64)}
[rank1]:[E1120 11:51:03.6 ProcessGroupNCCL.cpp:689] [Rank 1] {WATCHDOG.format(64)}
[rank0]:[E1120 11:51:06.8 ProcessGroupNCCL.cpp:733] Stack trace of the failed collective:
#0 all_reduce from /usr/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:3068
#1 wrapper from /usr/lib/python3.12/site-packages/torch/distributed/c10d_logger.py:83
#2 <module> from /home/user/train_job/victim.py:33

[rank0]:[E1120 11:51:06.9 ProcessGroupNCCL.cpp:2636] First PG on this rank to signal dumping.
"""
    ).events
    by_rank = {e.origin.rank: e for e in events}
    assert by_rank[0].values["site"] == "/home/user/train_job/victim.py:33 <module>"
    assert len(by_rank[0].extra) == 3
    assert "site" not in by_rank[1].values


RENDEZVOUS = """
{p}I1120 12:00:18.000000 77 torch/distributed/elastic/agent/api.py:525] [x] Rendezvous complete for workers. Result:
{p}  restart_count=0
{p}  master_addr=node-a
{p}  master_port=29500
{p}  group_rank=1
{p}  group_world_size=2
{p}  local_ranks=[0, 1]
{p}  role_ranks=[2, 3]
{p}  global_ranks=[2, 3]
{p}  role_world_sizes=[4, 4]
{p}  global_world_sizes=[4, 4]
"""


@pytest.mark.parametrize("prefix", ["", "1: ", "[pod/w-1/train] "])
def test_the_rendezvous_tells_which_ranks_are_on_the_node(prefix: str) -> None:
    found = event(RENDEZVOUS.format(p=prefix))
    assert found.signature == "elastic.rendezvous_complete"
    assert (found.values["group_rank"], found.values["global_ranks"]) == ("1", "[2, 3]")
    assert (found.values["master_addr"], found.origin.rank) == ("node-a", None)


def test_after_the_rendezvous_local_ranks_have_global_ones() -> None:
    reading = read(RENDEZVOUS.format(p="") + "[default1]:connect failed, retrying (1)")
    assert (reading.events[1].origin.local_rank, reading.events[1].origin.rank) == (1, 3)


def test_without_a_rendezvous_a_local_rank_is_no_rank() -> None:
    found = event("[default1]:connect failed, retrying (1)")
    assert (found.origin.local_rank, found.origin.rank) == (1, None)


def test_a_line_gets_the_rank_that_nccl_tells_later() -> None:
    found = event(
        """
vm:10:10 [0] socket.cc:1 NCCL WARN connect failed, retrying (1)
vm:10:10 [0] NCCL INFO comm 0x7 rank 5 nranks 8 cudaDev 0 busId 1 - Init COMPLETE
vm:11:11 [0] NCCL INFO comm 0x7 rank 6 nranks 8 cudaDev 1 busId 2 - Init COMPLETE
"""
    )
    assert (found.origin.host, found.origin.pid, found.origin.rank) == ("vm", 10, 5)


@cases(
    ("source", "rank", "local_rank", "node", "host", "pid"),
    [
        ("nccl.node0.vm.1130.log", None, None, "node0", "vm", 1130),
        ("logs/stdout.node1.log", None, None, "node1", None, None),
        ("rank_3/stderr.log", 3, None, None, None, None),
        ("log.rank3", 3, None, None, None, None),
        ("run_x/attempt_0/3/stderr.log", None, 3, None, None, None),
        ("worker-1.txt", None, None, "worker-1", None, None),
        ("logs.tar.gz!run/rank7.log", 7, None, None, None, None),
        ("local_rank_2.log", None, 2, None, None, None),
        ("nccl_debug.gpu-host-7.4711.log", None, None, "gpu-host-7", "gpu-host-7", 4711),
        ("slurm-123456.out", None, None, None, None, None),
        ("-", None, None, None, None, None),
    ],
)  # fmt: skip
def test_the_files_name_helps_where_lines_say_nothing(
    source: str, rank: int | None, local_rank: int | None, node: str | None, host: str | None, pid: int | None
) -> None:
    o = event("connect failed, retrying (1)", source).origin
    assert (o.rank, o.local_rank, o.node, o.host, o.pid) == (rank, local_rank, node, host, pid)


def test_the_lines_beat_the_files_name() -> None:
    assert event("[rank5]: connect failed, retrying (1)", "rank_3.log").origin.rank == 5
    text = (
        "vm:9:9 [0] NCCL INFO comm 0x7 rank 5 nranks 8 cudaDev 0 busId 1 - Init COMPLETE\nconnect failed, retrying (1)"
    )
    assert event(text, "rank_3.log").origin.rank == 5
    assert event("[pod/w-1/train] connect failed, retrying (1)", "node0.log").origin.node == "w-1"


def test_the_files_name_can_be_left_out() -> None:
    reading = read_lines(["connect failed, retrying (1)"], "rank_3.log", file_hints=False)
    assert reading.events[0].origin.rank is None


def test_in_a_shared_file_nobody_is_guessed() -> None:
    events = read("[rank0]: x\n[rank1]: x\nconnect failed, retrying (1)", "rank_0.log").events
    assert events[0].origin.rank is None


@cases(
    ("lines", "rank", "node"),
    [
        (["0: x", "1: x", "3: connect failed, retrying (1)"], 3, None),
        (["0: [rank0]: x", "1: [rank1]: x", "1: connect failed, retrying (1)"], 1, None),
        (["0: [rank0]: x", "0: [rank1]: x", "1: connect failed, retrying (1)"], None, "1"),
        (["0: [default0]:x", "0: [default1]:x", "1: connect failed, retrying (1)"], None, "1"),
        (["0: vm:1:1 [0] NCCL INFO x", "0: vm:2:2 [1] NCCL INFO x", "1: connect failed, retrying (1)"], None, "1"),
        (["0: [rank4]: x", "1: [rank5]: x", "1: connect failed, retrying (1)"], None, None),
        (["1: W1120 12:00:18.0 77 torch/distributed/run.py:779] x", "1: connect failed, retrying (1)"], None, "1"),
    ],
)  # fmt: skip
def test_a_tasks_number_is_a_rank_or_a_node_as_the_lines_tell(
    lines: list[str], rank: int | None, node: str | None
) -> None:
    found = event("\n".join(lines))
    assert (found.origin.rank, found.origin.node) == (rank, node)


def test_a_number_in_front_of_few_lines_is_no_label() -> None:
    found = event("\n".join(["text"] * 9) + "\n3: connect failed, retrying (1)")
    assert found.origin.rank is None


def test_the_containers_time_is_brought_to_the_process_zone() -> None:
    events = read(
        """
2026-11-20T03:51:03.000Z [rank0]:[E1120 11:51:03.000000000 x.cpp:1] connect failed, retrying (1)
2026-11-20T03:51:04.000Z [rank0]: connect failed, retrying (2)
"""
    ).events
    assert [e.time_s for e in events] == [dated(2026, 11, 20, 11, 51, 3), dated(2026, 11, 20, 11, 51, 4)]


@pytest.mark.parametrize(
    ("lines", "mtime_s", "year"),
    [([], MTIME_S, 2026), (["[2024-01-02 00:00:00] vm:1:1 [0] x.cc:1 NCCL WARN x"], MTIME_S, 2023)],
)
def test_a_dated_line_beats_the_time_of_the_file(lines: list[str], mtime_s: float, year: int) -> None:
    text = "\n".join(["[rank0]:[E1120 11:51:03.000000000 x.cpp:1] connect failed, retrying (1)", *lines])
    assert event_of(text, mtime_s) == dated(year, 11, 20, 11, 51, 3)


def event_of(text: str, mtime_s: float) -> float | None:
    return read(text, mtime_s=mtime_s).events[0].time_s


def test_ranks_that_printed_something_are_processes_with_a_last_line() -> None:
    found = read("[rank1]: first\n[rank0]:[W1120 11:51:03.0 x.cpp:1] text\n[rank1]: the last words").processes
    assert {p.rank: p.last_line for p in found} == {1: "the last words", 0: "text"}
    assert {p.rank: p.last_line_class for p in found} == {1: "other", 0: "other"}


def test_torchs_environment_is_kept_by_rank() -> None:
    found = read(
        "[rank1]:[I1120 11:51:03.0 ProcessGroupNCCL.cpp:1] [PG 0 Rank 1] ProcessGroupNCCL initialized with "
        "environments: NCCL version: 2.21.5, TORCH_NCCL_ASYNC_ERROR_HANDLING: 3, TORCH_NCCL_DUMP_ON_TIMEOUT: 0"
    ).processes[0]
    assert (found.rank, found.versions) == (1, {"nccl": "2.21.5"})
    assert found.env == {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}


def test_lines_are_counted_and_none_is_lost() -> None:
    source = read("connect failed, retrying (1)\n\niteration: 3\n[rank1]: text").source
    assert (source.kind, source.num_lines, source.num_understood, source.num_unknown) == ("log", 4, 1, 2)
    assert source.unknown_examples == ("iteration: 3", "[rank1]: text")


def test_what_the_scanner_only_counted_is_counted_here() -> None:
    scanned = Scanned(
        num_lines=5000,
        num_dropped=100,
        num_rest=1000,
        rest_examples=[b"iteration: 1"],
        lines=[RawLine(number=1, offset=0, text=b"vm:1:1 [0] x.cc:1 NCCL WARN connect failed, retrying (1)")],
        repeats=[
            Repeat(
                process="vm:1",
                text=b"vm:1:1 [0] x.cc:1 NCCL WARN connect failed, retrying (9)",
                count=3899,
                first=2,
                last=4000,
                last_offset=9,
            )
        ],
        problems=[said("{error}", error="the stream broke off")],
    )
    reading = interpret(scanned, "x.log", mtime_s=MTIME_S)
    assert sum(e.count for e in reading.events) == 3900
    assert reading.source.problem is not None
    assert "the stream broke off" in reading.source.problem
    assert "100 lines" in reading.source.problem


def test_overlapping_blocks_are_read_once() -> None:
    lines = [
        b"[rank0]: Traceback (most recent call last):",
        b"[rank1]: Traceback (most recent call last):",
        b'[rank0]:   File "/home/user/a.py", line 1, in <module>',
        b'[rank1]:   File "/home/user/a.py", line 2, in <module>',
        b"[rank0]: ValueError: zero",
        b"[rank1]: ValueError: one",
    ]
    scanned = Scanned(
        num_lines=6,
        lines=[
            RawLine(number=1, offset=0, text=lines[0], following=tuple(lines[1:])),
            RawLine(number=2, offset=9, text=lines[1], following=tuple(lines[2:])),
        ],
    )
    deaths = interpret(scanned, "x.log", mtime_s=MTIME_S).deaths
    assert [(d.rank, d.text, str(d.site)) for d in deaths] == [
        (0, "ValueError: zero", "/home/user/a.py:1 <module>"),
        (1, "ValueError: one", "/home/user/a.py:2 <module>"),
    ]


def test_colours_and_progress_bars_are_taken_away() -> None:
    found = event("\x1b[31mconnect failed, retrying (1)\x1b[0m")
    assert found.text == "connect failed, retrying (1)"
    assert event("10%|#   |\r20%|##  |\rconnect failed, retrying (1)").text == "connect failed, retrying (1)"


def test_the_source_below_a_frame_says_nothing() -> None:
    text = """
Traceback (most recent call last):
  File "/job/train.py", line 8, in check
    raise DistBackendError("DistBackendError: retrying (1)")
torch.distributed.DistBackendError: it failed
"""
    [found] = read(text).events
    assert found.values["what"] == "it failed"
