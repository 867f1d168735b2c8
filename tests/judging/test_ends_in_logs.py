"""Ends of which several lines speak: a deep stack, a box, a crash behind an error, a copy from a terminal."""

import io
from datetime import UTC, datetime

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.lines.scan import scan
from allready.evidence.lines.unfold import unfolded
from allready.evidence.log import interpret
from allready.model import Report, Verdict
from tests.cases import cases

BOX = [
    "-" * 74,
    "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
    "with errorcode 1.",
    "",
    "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.",
    "-" * 74,
]
LOOKED_UP = [
    "Traceback (most recent call last):",
    '  File "/app/solver/cache.py", line 8, in build',
    "    return self.kernels[key]",
    "KeyError: Key(shape=(4, 4))",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
]


def _report(lines: list[str], mtime_s: float | None = None) -> Report:
    scanned = scan(io.BytesIO("\n".join(lines).encode()))
    return judge_readings([interpret(scanned, "job.out", mtime_s=mtime_s)], Question(), started=datetime.now(UTC))[0]


def _verdict(lines: list[str], mtime_s: float | None = None) -> Verdict:
    found = _report(lines, mtime_s).verdict
    assert found is not None
    return found


def _deep(error: str, *, raised: str = "raise Unfit(key)") -> list[str]:
    """A traceback of some 240 lines, which passes the function that looked something up."""
    frames = ['  File "/app/solve.py", line 3, in <module>', "    main()"]
    frames += ['  File "/app/solver/cache.py", line 11, in build', "    return self.make(key)"]
    for n in range(118):
        frames += [f'  File "/app/solver/walk.py", line {n + 40}, in visit', "    return self.visit(child)"]
    return [
        "Traceback (most recent call last):",
        *frames,
        '  File "/app/solver/walk.py", line 9, in leaf',
        raised,
        error,
    ]


def test_a_deep_traceback_is_read_down_to_its_exception() -> None:
    assert "no kernel for int3" in _verdict(_deep("ValueError: no kernel for int3")).sentence


def test_what_was_made_for_a_key_that_was_not_there_is_what_failed() -> None:
    found = _verdict([*LOOKED_UP, *_deep("Unfit: no kernel for int3", raised='    raise Unfit("int3")'), *BOX])
    assert (found.code, found.culprits.ranks) == ("DTH001", (0,))
    assert "no kernel for int3" in found.sentence


def test_a_key_that_the_program_missed_stays_the_cause() -> None:
    other = ["Traceback (most recent call last):", '  File "/app/train.py", line 9, in <module>', "    save(x)"]
    found = _verdict([*LOOKED_UP, *other, "OSError: cannot save"])
    assert "KeyError" in found.sentence


@cases("said", ["solver must be used with 2 or more ranks", "Deck 7 requires at least one layer"])
def test_what_a_program_asks_for_before_it_aborts_is_quoted(said: str) -> None:
    noise = ["ps: /opt/lib/libuuid.so.1: no version information available (required by /lib64/libblkid.so.1)"]
    found = _verdict(["Command output:", f"  {said}!", "", "Command error:", *noise, *BOX])
    assert (found.code, found.culprits.ranks) == ("DTH004", (0,))
    assert said in found.sentence
    assert "code 1" in found.sentence


def test_a_crash_behind_an_error_that_nccl_returned_follows_from_it() -> None:
    lines = []
    for rank, host in ((0, "n01"), (1, "n02")):
        lines.append(f"{rank}: {host}:{rank + 70}:{rank + 70} [0] NCCL INFO Bootstrap : Using ib0:10.1.0.{rank + 1}<0>")
    failed = "1: n02:71:99 [0] include/socket.h:406 NCCL WARN Connect to 10.1.0.1<41000> failed : No route to host"
    codes = [f"1: n02:71:99 [0] NCCL INFO {at} -> 2" for at in ("bootstrap.cc:354", "init.cc:564", "init.cc:878")]
    crashed = ["srun: error: n02: task 1: Segmentation fault", "srun: error: n01: task 0: Terminated"]
    assert _verdict([*lines, failed, *codes, *crashed]).code == "NLG011"
    assert _verdict([*lines, *crashed]).code == "DTH002"


def test_times_of_day_are_of_the_days_that_glog_gives() -> None:
    agent = "E1030 11:42:16.325000 1400 torch/distributed/elastic/multiprocessing/api.py:833]"
    ended = f"{agent} failed (exitcode: 1) local_rank: 0 (pid: 15) of binary: /usr/bin/python"
    lines = ["[11:41:59.064379] Loss is nan, stopping training", ended]
    assert _verdict(lines, mtime_s=datetime(2026, 11, 30, 15, tzinfo=UTC).timestamp()).code == "PYL049"


def _broken(text: str, width: int) -> bytes:
    rows = [line[at : at + width] for line in text.split("\n") for at in range(0, max(1, len(line)), width)]
    return "\n".join(rows).encode()


WHOLE = """\
I0102 03:55:57.941848  2382 Util.cpp:166] commandline:  --use_gpu=1 --rnn_use_batch=True --trainer_count=8
F0102 03:56:01.989326  2382 Loader.cpp:104] Check failed: nullptr != *dso Failed to find dynamic library: libcublas.so \
(libcublas.so: cannot open shared object file: No such file or directory)
Please specify its path correctly, for instance with the environment variable LD_LIBRARY_PATH.
*** Check failure stack trace: ***"""


def test_lines_that_a_terminal_broke_at_its_width_are_whole_again() -> None:
    broken = _broken(WHOLE, 61)
    whole = unfolded(broken)
    assert whole is not None
    assert [row for row in whole.decode().split("\n") if row] == WHOLE.split("\n")
    assert whole.count(b"\n") == broken.count(b"\n")
    found = _verdict(whole.decode().split("\n"))
    assert found.code == "PYL010"
    assert "libcublas.so" in found.sentence


def test_lines_that_are_merely_of_one_length_stay_as_they_are() -> None:
    steps = "\n".join(
        f"step {n:04d} loss 0.{n:03d} lr 1e-4 tokens per second about {n + 40000} here" for n in range(60)
    )
    assert unfolded(steps.encode()) is None
    assert unfolded(WHOLE.encode()) is None
    boxes = "\n".join(
        ("=" * 72, "a title that is centred in here", "=" * 72, "more", "=" * 72, "words of it", "=" * 72)
    )
    assert unfolded(boxes.encode()) is None


UCC = "[1730117228.178968] [n1:3000 :0]   tl_cache.c:231  UCC  ERROR ipc-cache: failed to open ipc mem handle. err:201"


def test_an_error_of_ucx_is_the_last_thing_only_where_nothing_was_counted_before() -> None:
    assert _verdict(["# benchmark", UCC]).code == "DTH008"
    assert _report([*(f"step {n}/400 loss 1.{n:03d}" for n in range(1, 40)), UCC]).verdict is None


def test_who_loses_a_store_that_was_there_does_not_fail_to_reach_it() -> None:
    lost = (
        "[W409 14:32:01.123456789 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=73, addr=[n1]:33244, "
        "remote=[n1]:29500): Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown?"
    )
    failed = (
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: "
        "The connection to the C10d store has failed. See inner exception for details."
    )
    assert _verdict(["done training", lost, failed]).code == "RES003"
    assert _verdict([failed]).code == "ELA012"
