"""Whatever the bytes: no crash, bounds kept, and a result that travels between processes."""

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from allready.evidence.stacks.meaning import describe
from allready.evidence.stacks.read import is_stacks, read_stacks
from allready.evidence.stacks.threads import MAX_FRAMES, MAX_PROCESSES, MAX_THREADS
from tests.evidence.stacks.test_read import FAULTHANDLER, PYSPY

ODD = """
#0  0x0 in f () from /lib/x.so
[<0>] futex_wait+0x1/0x2
Error: Failed to x
Reason: y
Thread 1 (Thread 0x7 (LWP 3)):
rank 3
[{"pid": 1, "thread_id": 2}]
[{"pid": 1, "thread_id": 2, "frames": {"a": 1}
[rank7]: Thread 0x00007f53a1ffb700 (most recent call first):
==> /proc/5/stack <==
    f (a.py:99999999999999999999)
PID 5 - x
TID 7:
Parent Process 4711: x
  ...
0: 1: 2: Thread 5 (idle)
"""
LINES = st.sampled_from([*PYSPY.splitlines(), *FAULTHANDLER.splitlines(), *ODD.splitlines()])


@settings(max_examples=100, deadline=None)
@given(st.lists(LINES | st.text(max_size=30), max_size=60))
def test_lines_in_any_order_are_survived(lines: list[str]) -> None:
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    is_stacks(data)
    reading = read_stacks(data, "fuzz")
    pickle.loads(pickle.dumps(reading))
    for stack in reading.stacks:
        assert describe(stack).kind
        assert sum(t.is_main for t in stack.threads) <= len(stack.threads)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_survived(data: bytes) -> None:
    read_stacks(data, "fuzz")
    is_stacks(data)


def test_a_flood_is_bounded() -> None:
    frames = "    f (a.py:1)\n" * (MAX_FRAMES + 50)
    threads = 'Thread 5 (idle): "x"\n' * (MAX_THREADS + 50)
    reading = read_stacks(f'Process 1: a\nThread 5 (idle): "x"\n{frames}{threads}'.encode(), "x")
    (stack,) = reading.stacks
    assert len(stack.threads) == MAX_THREADS
    assert len(stack.threads[0].frames) == MAX_FRAMES
    many = read_stacks(b"Process 1: a\n" * (MAX_PROCESSES + 50), "x")
    assert len(many.stacks) == MAX_PROCESSES


def test_one_endless_line_is_quick() -> None:
    for piece in (b"Thread 1 (", b"    f (", b"Process 1: ", b"[<0>] ", b"#0 ", b'  File "', b"rank rank "):
        assert read_stacks(piece * 300_000, "x").source.num_lines == 1
