"""py-spy, faulthandler, gdb and kernel stacks; several in one file; errors; who is who."""

import json
from collections.abc import Sequence
from pathlib import Path

from allready.evidence.stacks.read import is_stacks, read_stacks
from allready.model import ProcessStack
from tests.cases import cases

RECORDED = Path(__file__).parents[2] / "fixtures" / "small_readers" / "stacks"

PYSPY = """Process 4711: /usr/bin/python3 -u train.py --local-rank=3 --rank 11
Python v3.12.3 (/usr/bin/python3.12)

Thread 4711 (active+gil): "MainThread"
    forward (models/gpt.py:88)
        Arguments:
            self: <GPT at 0x7f>
        Locals:
            x: <Tensor at 0x7f>
            global_rank: 11
    <module> (train.py:12)
Thread 4790 (idle): "Thread-1 (_pin_memory_loop)"
    wait (threading.py:359)
    get (queue.py:180)
    _bootstrap (threading.py:1032)
Thread 0x7F00AA (idle)
    poll (libc.so.6)
"""

FAULTHANDLER = """Timeout (0:00:30)!
Thread 0x00007f53a1ffb700 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f53b1ffb700 (most recent call first):
  File "/home/u/train.py", line 44 in step
  File "/home/u/train.py", line 90 in <module>
"""


def read(text: str, name: str = "stacks.txt") -> Sequence[ProcessStack]:
    reading = read_stacks(text.encode(), name)
    assert reading.source.num_unknown == 0, reading.source.unknown_examples
    return reading.stacks


@cases("path", sorted(RECORDED.glob("*.txt")), ids=lambda p: p.stem)
def test_recorded_dumps_are_launchers_and_ranks(path: Path) -> None:
    data = path.read_bytes()
    assert is_stacks(data[:4096])
    reading = read_stacks(data, path.name)
    assert reading.source.num_unknown == 0
    roles = [s.role for s in reading.stacks]
    assert set(roles) == {"launcher", "rank"}
    assert all(s.pid == s.origin.pid and s.pid is not None for s in reading.stacks)
    assert all([t.name for t in s.threads if t.is_main] == ["MainThread"] for s in reading.stacks)


def test_a_dump_with_locals_has_threads_states_and_ranks() -> None:
    (stack,) = read(PYSPY)
    assert is_stacks(PYSPY.encode())
    assert (stack.pid, stack.rank, stack.origin.local_rank, stack.role) == (4711, 11, 3, "rank")
    main, pin, bare = stack.threads
    assert main.is_main
    assert main.state == "gil"
    assert [(f.function, f.file, f.line) for f in main.frames] == [
        ("forward", "models/gpt.py", 88),
        ("<module>", "train.py", 12),
    ]
    assert (pin.name, pin.state, pin.is_main) == ("Thread-1 (_pin_memory_loop)", "idle", False)
    assert (bare.frames[0].file, bare.frames[0].line) == ("libc.so.6", None)


def test_native_frames_with_commas_and_parentheses_are_whole() -> None:
    text = """Process 1: python train.py
Python v3.11.9 (/usr/bin/python3.11)

Thread 1 (idle): "MainThread"
    c10d::TCPStore::wait(std::vector<std::string> const&, std::chrono::milliseconds) (libtorch_cpu.so)
    0x7f1234abcd (libcuda.so.535.104.05)
    <module> (train.py:3)
"""
    (stack,) = read(text)
    frame = stack.threads[0].frames[0]
    assert frame.function == "c10d::TCPStore::wait(std::vector<std::string> const&, std::chrono::milliseconds)"
    assert frame.file == "libtorch_cpu.so"


def test_colours_of_a_terminal_are_taken_off() -> None:
    text = "Process \x1b[1m\x1b[33m9\x1b[0m: python a.py\n"
    text += "Python v\x1b[1m3.12.3\x1b[0m (\x1b[2m/usr/bin/python3\x1b[0m)\n\n"
    text += 'Thread \x1b[33m9\x1b[0m (idle): "MainThread"\n    \x1b[32mf\x1b[0m (\x1b[36ma.py\x1b[0m:\x1b[2m3\x1b[0m)\n'
    (stack,) = read(text)
    assert stack.threads[0].frames[0].line == 3


def test_json_of_py_spy_is_the_same_as_its_text() -> None:
    frames = [
        {"name": "f", "filename": "/a/b/train.py", "short_filename": "train.py", "line": 3, "locals": None},
        {"name": "g", "filename": "libc.so.6", "short_filename": None, "line": 0},
    ]
    info = {"pid": 7, "command_line": "python train.py --rank 5", "parent": None}
    threads = [
        {
            "pid": 7,
            "thread_id": 99,
            "thread_name": "MainThread",
            "os_thread_id": 7,
            "active": False,
            "owns_gil": False,
            "frames": frames,
            "process_info": info,
        }
    ]
    text = json.dumps(threads, indent=2) + "\n\nrank 6\n" + json.dumps([threads[0] | {"pid": 8, "process_info": None}])
    assert is_stacks(text.encode())
    first, second = read(text)
    assert (first.pid, first.rank, first.threads[0].state) == (7, 5, "idle")
    assert first.threads[0].frames[1].line is None
    assert (second.pid, second.rank) == (8, 6)


def test_broken_json_is_a_problem_and_no_crash() -> None:
    reading = read_stacks(b'[{"pid": 7, "thread_id": 1, "frames": [', "x")
    assert not reading.stacks
    assert reading.source.problem == "broken JSON"


def test_faulthandler_marks_the_thread_that_runs_the_script() -> None:
    assert is_stacks(FAULTHANDLER.encode())
    (stack,) = read(FAULTHANDLER, "rank3.fault.log")
    assert stack.rank == 3
    assert [t.is_main for t in stack.threads] == [False, True]
    assert stack.threads[1].frames[0].file == "/home/u/train.py"
    assert stack.threads[0].state == ""


def test_dumps_that_repeat_are_several_stacks() -> None:
    assert len(read(FAULTHANDLER * 3)) == 3


def test_dumps_without_a_header_are_told_apart_by_their_main_thread() -> None:
    body = FAULTHANDLER.partition("\n")[2]
    assert len(read(body + "\n" + body.replace("7f53", "7e11"))) == 2


def test_a_fatal_error_with_cut_frames_and_extension_modules_is_understood() -> None:
    text = """Fatal Python error: Segmentation fault

Current thread 0x00007f53b1ffb700 [python] (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 125 in forward
  ...

Thread 0x00007f53c1ffb700 (most recent call first):
  <no Python frame>

Extension modules: numpy.core._multiarray_umath, torch._C (total: 2)
"""
    (stack,) = read(text)
    assert [len(t.frames) for t in stack.threads] == [1, 0]


def test_lines_of_ranks_that_interleave_are_put_apart_by_their_prefix() -> None:
    lines = FAULTHANDLER.splitlines()
    mixed = "\n".join(f"[rank{r}]: {line}" for line in lines for r in (4, 9) if line)
    assert is_stacks(mixed.encode())
    stacks = read(mixed)
    assert [s.rank for s in stacks] == [4, 9]
    assert all(len(s.threads) == 2 for s in stacks)
    local = "\n".join(f"[default{r}]:{line}" for line in lines for r in (0, 1) if line)
    assert [(s.rank, s.origin.local_rank) for s in read(local)] == [(None, 0), (None, 1)]


def test_gdb_threads_have_names_and_the_first_is_the_main_one() -> None:
    text = """Attaching to process 900
[New LWP 901]
[Thread debugging using libthread_db enabled]

Thread 2 (Thread 0x7f00 (LWP 901) "pt_nccl_watchdg"):
#0  0x00007f11 in __futex_abstimed_wait_common () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f12 in pthread_cond_clockwait@@GLIBC_2.34 () from /lib/x86_64-linux-gnu/libc.so.6

Thread 1 (Thread 0x7f01 (LWP 900) "python"):
#0  0x00007f13 in cudaStreamSynchronize () from /usr/lib/libcudart.so.12
#1  _PyEval_EvalFrameDefault (tstate=<optimized out>, frame=0x7f) at ./Python/ceval.c:4198
#2  Frame 0x7f, for file /home/u/train.py, line 35, in main (x=1)
"""
    assert is_stacks(text.encode())
    (stack,) = read(text)
    assert stack.pid == 900
    assert [t.is_main for t in stack.threads] == [False, True]
    wait, run = stack.threads[0].frames[1], stack.threads[1].frames
    assert (wait.function, wait.file) == ("pthread_cond_clockwait", "/lib/x86_64-linux-gnu/libc.so.6")
    assert (run[1].file, run[1].line) == ("./Python/ceval.c", 4198)
    assert (run[2].function, run[2].file, run[2].line) == ("main", "/home/u/train.py", 35)


def test_a_bare_pstack_is_one_thread() -> None:
    text = "#0  0x00007f13 in read () from /lib/libc.so.6\n#1  0x00007f14 in main ()\n"
    (stack,) = read(text, "pstack.555.txt")
    assert (stack.pid, len(stack.threads), stack.threads[0].is_main) == (555, 1, True)


def test_kernel_stacks_are_joined_to_the_stack_of_their_process() -> None:
    text = (
        PYSPY
        + "==> /proc/4711/stack <==\n[<0>] do_signal_stop+0x1a/0x2b\n[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]\n"
    )
    text += "==> /proc/4712/stack <==\n[<0>] hrtimer_nanosleep+0xc7/0x1b0\n"
    first, second = read(text)
    assert first.threads[-1].name == "kernel"
    assert [f.file for f in first.threads[-1].frames] == ["kernel", "[nfs]"]
    assert (second.pid, second.threads[0].is_main) == (4712, True)


NO_SUCH_PROCESS = """Error: Failed to get process executable name. Check that the process is running.

Caused by:
    0: No such file or directory (os error 2)
    1: No such file or directory (os error 2)

Stack backtrace:
   0: <E as anyhow::context::ext::StdError>::ext_context
  10: main
"""
OLD_NO_SUCH_PROCESS = """Error: Failed to find python version from target process
Reason: No such process (os error 3)
"""
DENIED = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'"


@cases(
    ("text", "expected"),
    [
        (OLD_NO_SUCH_PROCESS, "Failed to find python version from target process (No such process (os error 3))"),
        (DENIED, DENIED),
        ("ptrace: Operation not permitted.", "ptrace: Operation not permitted."),
        (
            NO_SUCH_PROCESS,
            f"{NO_SUCH_PROCESS.splitlines()[0].removeprefix('Error: ')} (No such file or directory (os error 2))",
        ),
    ],
)
def test_what_kept_a_tool_from_reading_is_kept(text: str, expected: str) -> None:
    (stack,) = read(text, "pyspy.1193.txt")
    assert (stack.error, stack.pid, stack.threads) == (expected, 1193, ())


def test_a_tool_s_error_alone_is_known_as_a_stack_file() -> None:
    for text in (OLD_NO_SUCH_PROCESS, NO_SUCH_PROCESS, DENIED):
        assert is_stacks(text.encode())


def test_an_error_within_a_dump_belongs_to_its_process() -> None:
    text = "Process 5: python a.py\nPython v3.12.3 (/usr/bin/python3)\n\nError: Failed to get stack traces\n" + PYSPY
    first, second = read(text)
    assert (first.pid, first.error) == (5, "Failed to get stack traces")
    assert (second.pid, second.error) == (4711, None)


def test_headers_between_dumps_tell_rank_and_host() -> None:
    text = f"=== rank 3 host gpu17 ===\n{PYSPY.replace('--rank 11', '').replace('global_rank', 'r')}"
    (stack,) = read(text)
    assert (stack.rank, stack.origin.host) == (3, "gpu17")


def test_children_are_known_by_their_frames() -> None:
    loader = """
----------------------------------------
Process 4800: /usr/bin/python3 -u train.py --local-rank=3 --rank 11
Python v3.12.3 (/usr/bin/python3.12)
Parent Process 4711: /usr/bin/python3 -u train.py

Thread 4800 (idle): "MainThread"
    poll (multiprocessing/connection.py:257)
    _worker_loop (torch/utils/data/_utils/worker.py:275)
    run (multiprocessing/process.py:108)
    _bootstrap (multiprocessing/process.py:314)
"""
    other = loader.replace("torch/utils/data/_utils/worker.py", "my/pool.py").replace("4800", "4801")
    assert [s.role for s in read(PYSPY + loader + other)] == ["rank", "loader", "other"]
    assert read(PYSPY + loader)[1].rank is None


@cases(
    ("command", "role"),
    [
        ("/usr/bin/python3 /usr/local/bin/torchrun --nproc-per-node 8 train.py", "launcher"),
        ("python -u -m torch.distributed.launch train.py", "launcher"),
        ("python -m accelerate.commands.launch train.py", "launcher"),
        ("/opt/venv/bin/python /opt/venv/bin/deepspeed --num_gpus 8 train.py", "launcher"),
        ("python -u train.py --deepspeed ds.json", "rank"),
        ("srun --mpi=pmix python train.py", "launcher"),
        ("NCCL_DEBUG=INFO python -W ignore train.py torchrun", "rank"),
        ("python -c from multiprocessing.resource_tracker import main;main(5)", "other"),
        ("python pip_train.py", "rank"),
        ("ray::TrainWorker.execute", "rank"),
    ],
)
def test_a_command_line_tells_launchers_from_ranks(command: str, role: str) -> None:
    text = f'Process 5: {command}\nPython v3.12.3 (/usr/bin/python3)\n\nThread 5 (idle): "MainThread"\n    f (x.py:1)\n'
    assert read(text)[0].role == role


def test_a_parent_that_spawned_ranks_is_their_launcher() -> None:
    frames = "    join (torch/multiprocessing/spawn.py:140)\n    <module> (train.py:9)\n"
    text = f'Process 5: python train.py\nPython v3.12.3 (x)\n\nThread 5 (idle): "MainThread"\n{frames}'
    assert read(text)[0].role == "launcher"
    assert read(text.replace("join", "_wrap"))[0].role == "rank"


def test_logs_with_a_stack_in_them_are_logs() -> None:
    log = "step 1 loss 0.3\n" * 50 + FAULTHANDLER
    assert not is_stacks(log.encode())
    assert not is_stacks(b"gpu17:1:1 [0] NCCL INFO Bootstrap: Using eth0\n" * 5)
    assert not is_stacks(b"")
    reading = read_stacks(log.encode(), "mixed.log")
    assert reading.source.num_unknown == 50
    assert len(reading.stacks) == 1


def test_a_file_with_several_processes_gives_no_pid_from_its_name() -> None:
    text = PYSPY + PYSPY.replace("4711", "4712")
    assert [s.pid for s in read(text, "pyspy.99.txt")] == [4711, 4712]


BEACON = """--- Process 77: rank 3, pid 77, host gpu1 ---
Thread 0x00007f4d9684a6c0 (most recent call first):
  File "/opt/site-packages/allready/live/beacon/thread.py", line 100 in _run

Thread 0x00007f4d9684a6d0 (most recent call first):
  File "/home/u/loader.py", line 7 in work

Current thread 0x00007f4d97e08b80 (most recent call first):
  File "/home/u/train.py", line 44 in step
  File "/home/u/train.py", line 90 in <module>
  File "<frozen runpy>", line 88 in _run_code
  File "/opt/site-packages/allready/live/beacon/script.py", line 153 in _execute
  File "/opt/site-packages/allready/live/beacon/main.py", line 120 in <module>
"""


def test_of_the_beacon_nothing_is_shown() -> None:
    [stack] = read(BEACON)
    assert (stack.role, stack.rank, stack.pid) == ("rank", 3, 77)
    assert [[f.function for f in t.frames] for t in stack.threads] == [["work"], ["step", "<module>"]]
    assert [t.is_main for t in stack.threads] == [False, True]


def test_runpy_of_anybody_else_stays() -> None:
    [stack] = read(FAULTHANDLER + '  File "<frozen runpy>", line 88 in _run_code\n')
    assert stack.threads[-1].frames[-1].function == "_run_code"


def test_where_torchs_watchdog_says_that_a_collective_was_called_stands_nobody() -> None:
    text = """[rank0]:[E1122 10:47:47.662279747 ProcessGroupNCCL.cpp:733] Stack trace of the failed collective:
#0 all_reduce from /opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:3068
#1 <module> from /home/user/train.py:47

"""
    assert read_stacks((text + PYSPY).encode(), "out.log").stacks[0].pid == 4711
    assert not read_stacks(text.encode(), "out.log").stacks
    [gdb] = read_stacks(b"Thread 1 (LWP 77):\n#0  0x00007f in poll () from /lib/libc.so.6\n", "gdb.txt").stacks
    assert gdb.threads[0].frames[0].function == "poll"
