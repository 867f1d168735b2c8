"""Whatever stands in front of a line's own message."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allready.evidence.clock import Clock, dated
from allready.evidence.prefix import KnownFronts, Prefix, has_label, parse, second_start
from tests.cases import cases

NOVEMBER = dated(2026, 11, 20, 12, 30, 0)
assert NOVEMBER is not None
CLOCK = Clock(NOVEMBER)
NOON = dated(2026, 11, 20, 12, 0, 18) or 0.0
NCCL = "vm:2685:2714 [1] NCCL INFO Using network Socket"
OF_NCCL = {
    "rest": "Using network Socket", "host": "vm", "pid": 2685, "tid": 2714, "cuda_dev": 1, "level": "INFO",
    "kind": "nccl",
}  # fmt: skip


def parts(text: str) -> dict[str, Any]:
    """What was found, without what was not."""
    return {name: value for name, value in parse(text, CLOCK)._asdict().items() if value not in (None, "")}


@cases(
    ("prefix", "found"),
    [
        ("", {}),
        ("0: ", {"task": 0}),
        ("12: ", {"task": 12}),
        ("  3: ", {"task": 3}),
        ("[default0]:", {"local_rank": 0}),
        ("[trainer3]:", {"local_rank": 3}),
        ("[rank7]:", {"rank": 7}),
        ("[rank7]: ", {"rank": 7}),
        ("[1,0]<stdout>:", {"task": 0}),
        ("[1,3]<stderr>:", {"task": 3}),
        ("[prterun-node1-77@1,5]<stdout>: ", {"task": 5}),
        ("[3] ", {"task": 3}),
        ("2026-11-20T12:00:18.000000000Z ", {"outer_time_s": NOON}),
        ("2026-11-20T12:00:18.500+08:00 ", {"outer_time_s": NOON + 0.5}),
        ("2026-11-20T12:00:18Z ", {"outer_time_s": NOON}),
        ("[pod/job-worker-0/pytorch] ", {"node": "job-worker-0"}),
        ("[job-worker-0/pytorch] ", {"node": "job-worker-0"}),
        ("job-worker-0 pytorch ", {"node": "job-worker-0"}),
        ("worker-1  | ", {"node": "worker-1"}),
        ("worker1 | ", {"node": "worker1"}),
        ("pod/worker-1 | ", {"node": "worker-1"}),
        ("stderr: ", {}),
        ("  |   |   | 2026-11-20 12:00:18 | ", {"time_s": NOON}),
        ("(worker1, rank=1, pid=2685, ip=10.0.0.2) ", {"node": "10.0.0.2"}),
        ("[7]:", {"local_rank": 7}),
        ("(EngineCore_DP0 pid=2685) ERROR 11-20 12:00:18 [core.py:842] ", {}),
        ("(VllmWorker rank=3 pid=2685) ERROR 11-20 12:00:18 multiproc_worker_utils.py:240] ", {}),
        ("2026-11-20T12:00:18Z pod/worker-1 | ", {"outer_time_s": NOON, "node": "worker-1"}),
        ("2026-11-20 12:00:18 pod/worker-1 | ", {"time_s": NOON, "node": "worker-1"}),
        ("12:00:18 pod/worker-1 | ", {"time_s": NOON, "node": "worker-1"}),
        ("ERROR   2026-11-20 12:00:18 +0000       workerpool0-0   ", {"outer_time_s": NOON, "node": "workerpool0-0"}),
        ("INFO\t2026-11-20 12:00:18 +0000\tservice\t\t", {"outer_time_s": NOON, "node": "service"}),
        ("ip-10-0-0-2: ", {"node": "ip-10-0-0-2"}),
        ("Nov 20 12:00:18 gpu7 python[2685]: ", {"outer_time_s": NOON}),
        ("2026-11-20T12:00:18+0100 gpu7 python[2685]: ", {"outer_time_s": NOON}),
        ("[node 1 rank 3] ", {"node": "1", "rank": 3}),
        ("[node1 rank3] ", {"node": "1", "rank": 3}),
        ("[node 1] ", {"node": "1"}),
        ("(TrainWorker pid=2685, ip=10.0.0.2) ", {"node": "10.0.0.2"}),
        ("[2026-11-20 12:00:18] ", {"time_s": NOON}),
        ("[2026-11-20 12:00:18.250] ", {"time_s": NOON + 0.25}),
        ("2026-11-20 12:00:18 ", {"time_s": NOON}),
        ("[2026/11/20 12:00:18] ", {"time_s": NOON}),
        ("<2026-11-20T12:00:18>", {"time_s": NOON}),
        ("2026-11-20 12:00:18 UTC | ", {"time_s": NOON}),
        ("12:00:18 ", {"time_s": NOON}),
        ("[12:00:18.500] ", {"time_s": NOON + 0.5}),
        ("11/20/2026 12:00:18 ", {"time_s": NOON}),
        ("1795176018.5 ", {"time_s": NOON + 0.5}),
        ("Fri Nov 20 12:00:18 2026[1,3]<stdout>:", {"outer_time_s": NOON, "task": 3}),
        ("Fri Nov 20 12:00:18 2026<stdout>:", {"outer_time_s": NOON}),
        ("2026-11-20T12:00:18.500Z: [1,12]<stdout>:", {"outer_time_s": NOON + 0.5, "task": 12}),
        ("  | 2026-11-20T12:00:18.500Z | ", {"outer_time_s": NOON + 0.5}),
        ("  | 2026-11-20T12:00:18.500Z | [rank3]:", {"outer_time_s": NOON + 0.5, "rank": 3}),
        ("        | [rank3]: ", {"rank": 3}),
        ("[2026-11-20T12:00:18.500000Z] fa88a9df || ", {"time_s": NOON + 0.5}),
        ("half a line of another process ", {}),
    ],
)
def test_every_prefix_is_taken_off_an_nccl_line(prefix: str, found: dict[str, Any]) -> None:
    got = parts(prefix + NCCL)
    assert {k: v for k, v in got.items() if k in {*found, *OF_NCCL}} == OF_NCCL | found
    assert set(got) <= {*OF_NCCL, *found}


OUTER = ["0: ", "[pod/w-0/train] ", "2026-11-20T12:00:18.000000001Z ", "w-0  | ", ""]
INNER = ["[default1]:", "[rank5]: ", "[1,5]<stdout>:", ""]
STAMP = ["[2026-11-20 12:00:18] ", ""]


@cases(("outer", "inner", "stamp"), list(itertools.product(OUTER, INNER, STAMP)))
def test_prefixes_stand_in_any_stack(outer: str, inner: str, stamp: str) -> None:
    got = parse(outer + inner + stamp + NCCL, CLOCK)
    assert (got.rest, got.host, got.pid, got.level) == ("Using network Socket", "vm", 2685, "INFO")
    assert got.time_s == (NOON if stamp else None)
    assert got.rank == (5 if "rank5" in inner else None)
    assert got.local_rank == (1 if "default1" in inner else None)
    assert got.node == ("w-0" if "w-0" in outer else None)
    assert (got.outer_time_s is not None) == outer.startswith("2026")


@cases(
    ("text", "found"),
    [
        ("vm:1:2 [0] NCCL INFO x", {"level": "INFO", "cuda_dev": 0}),
        ("vm:1:2 NCCL CALL ncclAllReduce(0)", {"level": "CALL", "rest": "ncclAllReduce(0)"}),
        ("vm:1:2 [0] 12.345678 initRank:123 NCCL TRACE x", {"level": "TRACE", "file": "initRank:123"}),
        ("vm:1:2 [0] misc/socket.cc:72 NCCL WARN x", {"level": "WARN", "file": "misc/socket.cc:72"}),
        ("vm:1:2 [3] os/linux.cc:72 (ncclOsSocket) NCCL WARN x", {"level": "WARN", "file": "os/linux.cc:72"}),
        ("vm:1:2 [0] init.cc:9 (operator()) NCCL WARN x", {"level": "WARN"}),
        ("vm:1:2 [0] <unknown>:0 (<unknown>) NCCL WARN x", {"level": "WARN"}),
        ("vm:1:2 [0] NCCL ATTN x", {"level": "ATTN"}),
        ("node-1.rack_2:1:2 [-1] NCCL INFO x", {"host": "node-1.rack_2", "cuda_dev": -1}),
        ("[20261120-120018.123]vm:1:2 [0] NCCL INFO x", {"host": "vm"}),
    ],
)  # fmt: skip
def test_nccl_writes_its_own_prefix_in_these_forms(text: str, found: dict[str, Any]) -> None:
    got = parts(text)
    assert got["kind"] == "nccl"
    assert got["pid"] == 1
    assert {name: got.get(name) for name in found} == found


@cases(
    ("text", "found"),
    [
        (
            "[rank2]:[E1120 11:51:03.786788737 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught",
            {"rank": 2, "rest": "[Rank 0] Watchdog caught", "level": "ERROR", "file": "ProcessGroupNCCL.cpp:689",
             "time_s": NOON - 555 + 0.786788737},
        ),
        ("[W1120 12:00:18.000000000 socket.cpp:207] [c10d] text",
         {"rest": "[c10d] text", "level": "WARN", "time_s": NOON}),
        ("[E709 17:05:38.162555850 ProcessGroupNCCL.cpp:632] text",
         {"time_s": (dated(2026, 7, 9, 17, 5, 38) or 0) + 0.16255585}),
        ("[E ProcessGroupNCCL.cpp:475] [Rank 0] text", {"rest": "[Rank 0] text", "level": "ERROR"}),
        (
            "W1120 12:00:18.000000 1260 torch/distributed/elastic/multiprocessing/api.py:1012] Sending",
            {"pid": 1260, "level": "WARN", "rest": "Sending",
             "file": "torch/distributed/elastic/multiprocessing/api.py:1012", "time_s": NOON},
        ),
        ("W1120 12:00:18.000000 140209818330880 torch/distributed/run.py:779] text", {"rest": "text", "time_s": NOON}),
        ("E1120 12:00:18.075402  157988 coordination_service_agent.cc:332] text", {"tid": 157988, "rest": "text"}),
        ("[2026-11-20 12:00:18,000] torch.distributed.run: [WARNING] text",
         {"file": "torch.distributed.run", "level": "WARN", "rest": "text", "time_s": NOON, "kind": "python"}),
        ("[2026-11-20 12:00:18,000] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 12",
         {"file": "launch.py:315", "rest": "Killing subprocess 12", "level": "INFO"}),
        ("2026-11-20 12:00:18.140058: E external/xla/coordination/service.cc:954] text",
         {"file": "external/xla/coordination/service.cc:954", "level": "ERROR", "rest": "text", "kind": "glog",
          "time_s": NOON + 0.140058}),
        ("2026-11-20 12:00:18: text", {"rest": "text", "time_s": NOON}),
        ("WARNING:torch.distributed.run:text", {"file": "torch.distributed.run", "level": "WARN", "rest": "text"}),
        ("2026-11-20 12:00:18,000 - train.loop - ERROR - text",
         {"file": "train.loop", "level": "ERROR", "rest": "text"}),
        ("2026-11-20 12:00:18 INFO text", {"level": "INFO", "rest": "text"}),
        ("2026-11-20 12:00:18 | WARNING | text", {"level": "WARN", "rest": "text"}),
        ("11/20/2026 12:00:18 - INFO - __main__ - text", {"level": "INFO", "rest": "text", "time_s": NOON}),
        ("[12345.678901] NVRM: Xid", {"kind": "kernel", "rest": "NVRM: Xid"}),
        ("[    5.678901] NVRM: Xid", {"kind": "kernel", "rest": "NVRM: Xid"}),
        ("[Fri Nov 20 12:00:18 2026] NVRM: Xid", {"kind": "kernel", "rest": "NVRM: Xid", "time_s": NOON}),
        ("Nov 20 12:00:18 gpu7 kernel: [  12.123456] NVRM: Xid",
         {"kind": "kernel", "host": "gpu7", "rest": "NVRM: Xid", "outer_time_s": NOON}),
        ("<4>[12345.678901] NVRM: Xid", {"kind": "kernel", "rest": "NVRM: Xid"}),
        ("[1613401128.440695] [gpu7:11838:0]         ib_md.c:325  UCX  ERROR text",
         {"host": "gpu7", "pid": 11838, "time_s": 1613401128.440695, "rest": "ib_md.c:325  UCX  ERROR text"}),
        ("[1581060992.288391] [gpu7:9817 :0] select.c:438 text",
         {"host": "gpu7", "pid": 9817, "time_s": 1581060992.288391, "rest": "select.c:438 text"}),
        ("[gpu7:77:0:78] ib_mlx5_log.c:139  text", {"host": "gpu7", "pid": 77, "rest": "ib_mlx5_log.c:139  text"}),
        ("[gpu7:77:0:78] Caught signal 11", {"rest": "[gpu7:77:0:78] Caught signal 11"}),
        ("Nov 20 12:00:18 gpu7 slurmstepd[77]: text", {"kind": "syslog", "pid": 77, "rest": "text"}),
    ],
)  # fmt: skip
def test_other_loggers_are_known(text: str, found: dict[str, Any]) -> None:
    got = parts(text)
    assert {name: got.get(name) for name in found} == pytest.approx(found) if "time_s" in found else found
    for name, value in found.items():
        assert got.get(name) == (pytest.approx(value, abs=1e-5) if isinstance(value, float) else value)


@cases(
    "text",
    [
        "[Rank 0] Watchdog caught collective operation timeout",
        "[c10d] The hostname of the client socket cannot be retrieved",
        "[PG ID 0 PG GUID 0(default_pg) Rank 2] failure",
        "[0]:",
        "  rank      : 3 (local_rank: 1)",
        '  File "train.py", line 3, in main',
        "ValueError: bad sample",
        "iteration: 31",
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:3135",
        "[2] is setting up NCCL communicator and retrieving ncclUniqueId from [0]",
        "the answer | is 4",
        "  | Traceback (most recent call last):",
        "2026-11-20 12:00:18:123 text",
        "2026-11-20 12:0 text",
        "2026-11-20 12:00:1 text",
        "loss 0.1 step 3: fine",
        "",
        "[",
        "NCCL INFO without a host",
    ],
)
def test_a_sentence_has_no_prefix(text: str) -> None:
    assert parse(text, CLOCK) == Prefix(text)


def test_the_indentation_of_a_traceback_stays() -> None:
    assert parse('[rank2]:   File "x.py", line 1, in f', CLOCK).rest == '  File "x.py", line 1, in f'
    assert parse('[default2]:  File "x.py", line 1, in f', CLOCK).rest == '  File "x.py", line 1, in f'
    assert parse('3:   File "x.py", line 1, in f', CLOCK).rest == '  File "x.py", line 1, in f'


def test_a_number_alone_begins_an_entry_of_a_table() -> None:
    assert parse("[1]:", CLOCK).rest == "[1]:"


def test_the_indentation_behind_a_column_stays() -> None:
    for front in (
        "ERROR   2026-11-20 12:00:18 +0000       service         ",
        "INFO\t2026-11-20 12:00:18 +0000\tw0-0\t",
    ):
        assert parse(f'{front}  File "a.py", line 3, in f', CLOCK).rest == '  File "a.py", line 3, in f'


def test_the_rank_in_the_text_is_not_the_global_rank() -> None:
    assert parse("[rank6]:[E1120 11:51:03.1 ProcessGroupNCCL.cpp:689] [Rank 2] Watchdog", CLOCK).rank == 6


def test_labels_can_be_left_alone() -> None:
    assert has_label("3: text")
    assert not has_label("12:00:18 text")
    assert parse("3: text", CLOCK, labels=False).rest == "3: text"


NOON_SHARP = NOON - 18
FRONTS = [
    ("2026-11-20 12:00 ", {"time_s": NOON_SHARP}),
    (" 2026-11-20 12:00 ", {"time_s": NOON_SHARP}),
    ("2026-11-20T12:00 ", {"time_s": NOON_SHARP}),
    ("[2026-11-20 12:00] ", {"time_s": NOON_SHARP}),
    ("2026/11/20 12:00 | ", {"time_s": NOON_SHARP}),
    ("2026-11-20 12:00:18 - ", {"time_s": NOON}),
    ("2026-11-20 12:00:18 | ", {"time_s": NOON}),
    ("2026-11-20 12:00:18.000 +0000 UTC ", {"time_s": NOON}),
    ("2026-11-20T12:00:18Z stderr F ", {"outer_time_s": NOON}),
    ("11/20/2026 12:00:18 PM ", {"time_s": NOON}),
    ("1795176018 ", {"time_s": NOON}),
    ("11-20 12:00:18 ", {"time_s": NOON}),
    ("20-Nov-2026 12:00:18 ", {"time_s": NOON}),
    ("Fri Nov 20 12:00:18 UTC 2026 ", {"time_s": NOON}),
    ("12:00 ", {}),
    ("ERROR: ", {}),
    ("gpu-7.rack2 [stderr] ", {"node": "gpu-7.rack2"}),
    ("10.0.0.2: ", {}),
    ("out.log:12: ", {}),
    ("[default3]: ", {"local_rank": 3}),
    ("> ", {}),
]


@cases(("front", "found"), FRONTS)
def test_a_rank_is_read_behind_a_stamp_of_any_form(front: str, found: dict[str, Any]) -> None:
    got = parts(front + "[rank3]: ValueError: bad sample")
    assert (got.pop("rank"), got.pop("rest")) == (3, "ValueError: bad sample")
    assert {name: got.get(name) for name in found} == found
    words = "[rank3]:[E1120 12:00:19.000000000 ProcessGroupNCCL.cpp:633] [Rank 1] Watchdog caught"
    torch = parse(front + words, CLOCK)
    assert (torch.rank, torch.rest, torch.kind, torch.time_s) == (3, "[Rank 1] Watchdog caught", "glog", NOON + 1)


@pytest.mark.parametrize("front", [" 45%|####      | 45/100 [00:12<00:10,  5.1it/s, loss=2.6]", "half a line: "])
def test_words_of_torch_begin_behind_half_a_line(front: str) -> None:
    got = parse(front + "[rank3]:[E1120 12:00:19.000000000 ProcessGroupNCCL.cpp:633] [Rank 1] Watchdog", CLOCK)
    assert (got.rank, got.rest) == (3, "[Rank 1] Watchdog")
    got = parse(front + "[E ProcessGroupNCCL.cpp:458] [Rank 1] Watchdog", CLOCK)
    assert (got.rank, got.rest, got.file) == (None, "[Rank 1] Watchdog", "ProcessGroupNCCL.cpp:458")
    assert parse(front + "[rank3]: Traceback (most recent call last):", CLOCK).rank == 3


@cases(
    "text",
    [
        "lost the connection to [rank3]: reset",
        "2026-11-20 12:00:18 waiting for [rank3]: not there",
        "peers: [rank3]: down, [rank4]: up",
        "- [rank3]: down",
        "step 12: [rank3]: slower than others",
    ],
)
def test_a_sentence_about_a_rank_is_not_its_own(text: str) -> None:
    assert parse(text, CLOCK).rank is None
    assert parse("[rank1]: " + text, CLOCK).rank == 1


def test_two_processes_in_one_line_are_told_apart() -> None:
    assert second_start("Channel 00/0 : 0[0] -> 1[1] via vm:3:3 [0] NCCL INFO x") == 32
    assert second_start("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM") is None
    assert second_start("text about NCCL INFO lines") is None
    assert second_start("step 0 loss 1.0[rank1]: Traceback (most recent call last):") == 15
    assert second_start("8/10 [00:01<00:02, 3.1it/s][rank12]:[E1122 23:36:26.07 a.cpp:1] x") == 27
    assert second_start("workers of [rank1]: Traceback (most recent call last):") is None
    assert second_start("trainer-1:[rank1]: Traceback (most recent call last):") is None


@given(st.text(max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_text_has_a_prefix_and_a_rest(text: str) -> None:
    got = parse(text, CLOCK)
    assert text.endswith(got.rest)


@given(
    st.lists(
        st.sampled_from(
            [
                "[rank1]:",
                "3: ",
                "[2026-11-20 12:00:18] ",
                "vm:1:2 [0] ",
                "NCCL ",
                "INFO ",
                "[",
                "]",
                "9" * 40,
                "[E1399 99:99:99.1 x.cpp:1] ",
                "2026-99-99 99:99:99 ",
                "(",
                "pid=",
                "\x00",
            ]
        ),
        max_size=12,
    )
)
@settings(max_examples=100, deadline=None)
def test_pieces_of_prefixes_do_no_harm(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert text.endswith(parse(text, CLOCK).rest)


@cases("labels", [True, False])
def test_what_lines_began_with_before_changes_nothing(labels: bool) -> None:
    fronts = [
        f"{date}{between}{process}"
        for date in (
            "2026-11-20T11:51:02.123456789Z", "2026-11-20T11:51:03.5Z", "2026-11-20 11:51:02",
            "2026-11-20 11:51:07,125",
            "2026-13-20T11:51:02Z", "2026-11-20T11:51:02+01:00", "2026-11-20T11:51", "2026-11-20T25:00:00Z", "",
        )
        for between in (" ", ": ", " stdout F ", " 3: ", " [1,3]<stdout>:", " gpu07 python[77]: ", " - INFO - ",
                        " [rank3]: ")
        for process in ("gpu07:4242:4300 [0]", "gpu07:4242:4300 [3] misc/a.cc:7", "[2026-11-20 11:50:00] gpu07:1:2 [1]",
                        "x")
    ]  # fmt: skip
    known: KnownFronts = {}
    clock = CLOCK
    for words in ("NCCL INFO Init COMPLETE", "NCCL WARN NCCL INFO x", "NCCL INFO"):
        for front in fronts:
            line = f"{front} {words}"
            assert parse(line, clock, labels=labels, known=known) == parse(line, clock, labels=labels), line
            assert parse(line, clock, labels=not labels, known=known) == parse(line, clock, labels=not labels), line
    assert len(known) > 50
