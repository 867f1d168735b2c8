"""Ends of processes in the words of launchers, shells, schedulers and kernels."""

import io
from typing import Any

import pytest

from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret, read_lines
from allready.model import Death
from tests.cases import cases
from tests.evidence.log.reading import read

pytestmark = pytest.mark.thorough

TABLE = """\
{border}
train.py FAILED
------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-20_11:51:27
  host      : node-b.cluster
  rank      : 2 (local_rank: 0)
  exitcode  : -15 (pid: 1279)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 1279
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_11:51:27
  host      : node-b.cluster
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 1281)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 1281
{border}
""".format(border="=" * 54)
VIOLATION = "access violation (0xC0000005)"
AGENT = "E1120 11:51:27.492000 1260 torch/distributed/elastic/multiprocessing/api.py:986] "
MPI_DETECTED = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[4242,1],2]
  Exit code:    1
"""
HYDRA = """\
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK 3 PID 99 RUNNING AT n7
=   KILLED BY SIGNAL: 9 (Killed)
"""
DEEPSPEED = (
    "[2026-11-20 12:00:18,000] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 't.py', "
    "'--local_rank=3'] exits with return code = -9"
)
CLOSING = AGENT.replace("E1120", "W1120") + "Sending process 1279 closing signal SIGTERM\n"
FAILED = AGENT + "failed (exitcode: -9) local_rank: 1 (pid: 1281) of binary: /usr/bin/python3\n"


def told(text: str, source: str = "out.log") -> list[dict[str, Any]]:
    """The deaths, without what is not known."""
    names = ("kind", "rank", "local_rank", "node", "host", "pid", "signal", "exit_code", "by_launcher", "first")
    return [
        {n: v for n in names if (v := getattr(death, n)) is not None and v is not False}
        for death in read(text, source).deaths
    ]


def test_horovodrun_says_whose_stream_a_line_is_and_who_lost_a_peer_is_no_cause() -> None:
    lost = "".join(
        f"[{rank}]<stderr>:terminate called after throwing an instance of 'gloo::IoException'\n"
        f"[{rank}]<stderr>:  what():  [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:589] "
        "Read error [127.0.0.1]:3977: Connection reset by peer\n"
        f"[{rank}]<stderr>:Aborted (core dumped)\n"
        for rank in (1, 2)
    )
    deaths = read(f"[0]<stderr>:Killed\n{lost}Process 0 exit with status code 137.\n", "out.log").deaths
    assert {d.rank: (d.signal, d.is_collective_error) for d in deaths} == {
        0: ("SIGKILL", False),
        1: ("SIGABRT", True),
        2: ("SIGABRT", True),
    }


VICTIM = {"kind": "signal", "rank": 2, "local_rank": 0, "host": "node-b.cluster", "pid": 1279, "signal": "SIGTERM",
          "exit_code": -15, "by_launcher": True}  # fmt: skip
KILLED = {"kind": "signal", "rank": 3, "local_rank": 1, "host": "node-b.cluster", "pid": 1281, "signal": "SIGKILL",
          "exit_code": -9, "first": True}  # fmt: skip


@cases("prefix", ["", "1: ", "[pod/w-1/train] ", "[node 1] "])
def test_three_statements_of_one_death_are_one(prefix: str) -> None:
    text = "".join(prefix + line + "\n" for line in (CLOSING + FAILED + TABLE).splitlines())
    found = told(text)
    for death in found:
        death.pop("node", None)
    assert sorted(found, key=lambda d: d["pid"]) == [VICTIM, KILLED]


def test_a_table_alone_tells_who_died_and_what_the_times_were() -> None:
    deaths = read(TABLE).deaths
    assert {d.rank: (d.signal, d.first, d.by_launcher) for d in deaths} == {
        2: ("SIGTERM", False, False),
        3: ("SIGKILL", True, False),
    }
    assert {d.time_s for d in deaths} == {1_795_175_487.0}


def test_tables_of_several_nodes_in_one_file() -> None:
    other = (
        TABLE.replace("rank      : 2", "rank      : 0").replace("rank      : 3", "rank      : 1").replace("12", "22")
    )
    deaths = read(TABLE + other).deaths
    assert sorted((d.rank or 0, d.first) for d in deaths) == [(0, False), (1, True), (2, False), (3, True)]


def test_only_one_failure() -> None:
    text = (
        TABLE.partition("[1]:")[0] + "  <NO_OTHER_FAILURES>\n" + TABLE.partition("SIGTERM) received by PID 1279\n")[2]
    )
    assert [d["rank"] for d in told(text)] == [3]


def test_the_exception_in_a_table_is_kept() -> None:
    text = TABLE.replace("Signal 9 (SIGKILL) received by PID 1281", "Traceback (most recent call last):")
    text = text.replace("exitcode  : -9", "exitcode  : 1").replace(
        "most recent call last):\n===",
        'most recent call last):\n    File "/usr/lib/python3/site-packages/torch/x/__init__.py", line 3, in wrapper\n'
        '      return f()\n    File "/home/user/train.py", line 9, in main\n      raise KeyError("x")\n'
        "  KeyError: 'x'\n  \n===",
    )
    death = next(d for d in read(text).deaths if d.rank == 3)
    assert (death.kind, death.text, str(death.site), death.exit_code) == (
        "exception",
        "KeyError: 'x'",
        "/home/user/train.py:9 main",
        1,
    )


def test_the_old_table_is_read() -> None:
    text = """
*****************************************************
            train.py FAILED
=====================================================
Root Cause:
[0]:
  time: 2021-04-01_10:00:00
  rank: 1 (local_rank: 1)
  exitcode: 1 (pid: 123)
  error_file: <N/A>
  msg: "Process failed with exitcode 1"
=====================================================
Other Failures:
  <NO_OTHER_FAILURES>
*****************************************************
"""
    assert told(text) == [{"kind": "exit", "rank": 1, "local_rank": 1, "pid": 123, "exit_code": 1, "first": True}]


def test_an_exception_explains_its_exit_code() -> None:
    traceback = (
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/home/user/train.py", line 9, in <module>\n'
        "[rank3]: ValueError: bad\n"
    )
    text = traceback + CLOSING + FAILED.replace("-9", "1") + TABLE.replace("-9", "1")
    deaths = {d.rank: d for d in read(text).deaths}
    assert set(deaths) == {2, 3}
    assert (deaths[3].kind, deaths[3].pid, deaths[3].exit_code, deaths[3].first) == ("exception", 1281, 1, True)
    assert deaths[3].text == "ValueError: bad"
    assert deaths[3].origin.line == 1


def test_one_rank_may_die_in_two_attempts() -> None:
    traceback = (
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/home/user/train.py", line 9, in <module>\n'
        "[rank3]: ValueError: bad 1281\n"
    )
    text = traceback + FAILED.replace("-9", "1") + TABLE.replace("-9", "1")
    text = text.replace("1281", "500") + text.replace("1281", "600")
    deaths = [d for d in read(text).deaths if d.rank == 3]
    assert [(d.pid, d.text) for d in deaths] == [(500, "ValueError: bad 500"), (600, "ValueError: bad 600")]


def test_who_is_told_to_stop_without_a_table_was_ended_by_the_launcher() -> None:
    assert told(CLOSING) == [{"kind": "signal", "pid": 1279, "signal": "SIGTERM", "by_launcher": True}]


def test_an_own_exit_code_beats_the_closing_signal() -> None:
    line = AGENT + "failed (exitcode: 1) local_rank: 0 (pid: 1279) of binary: x\n"
    assert told(CLOSING + line) == [{"kind": "exit", "pid": 1279, "exit_code": 1, "local_rank": 0, "first": True}]


@cases(
    ("text", "deaths"),
    [
        ("srun: error: node01: task 3: Killed",
         [{"kind": "signal", "rank": 3, "node": "node01", "signal": "SIGKILL"}]),
        ("srun: error: node01: task 3: Segmentation fault (core dumped)",
         [{"kind": "signal", "rank": 3, "node": "node01", "signal": "SIGSEGV"}]),
        ("srun: error: node01: tasks 0-1,3: Exited with exit code 1",
         [{"kind": "exit", "rank": r, "node": "node01", "exit_code": 1} for r in (0, 1, 3)]),
        ("srun: error: node01: task 2: Out Of Memory",
         [{"kind": "oom", "rank": 2, "node": "node01", "signal": "SIGKILL"}]),
        ("srun: error: node01: task 2: Aborted (core dumped)",
         [{"kind": "abort", "rank": 2, "node": "node01", "signal": "SIGABRT"}]),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.",
         [{"kind": "oom", "signal": "SIGKILL"}]),
        ("mpirun noticed that process rank 3 with PID 1234 on node n7 exited on signal 9 (Killed).",
         [{"kind": "signal", "rank": 3, "pid": 1234, "node": "n7", "signal": "SIGKILL", "exit_code": -9,
           "first": True}]),
        ("mpirun noticed that process rank 2 with PID 0 on node n7 exited on signal 15 (Terminated).",
         [{"kind": "signal", "rank": 2, "node": "n7", "signal": "SIGTERM", "exit_code": -15, "by_launcher": True}]),
        ("prterun noticed that process rank 1 with PID 0 on node n7 exited on signal 11 (Segmentation fault).",
         [{"kind": "signal", "rank": 1, "node": "n7", "signal": "SIGSEGV", "exit_code": -11, "first": True}]),
        (MPI_DETECTED,
         [{"kind": "exit", "rank": 2, "exit_code": 1, "first": True}]),
        ("MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD\nwith errorcode 7.",
         [{"kind": "exit", "rank": 5, "exit_code": 7, "first": True}]),
        ("mpirun noticed that process rank 1 with PID xxxxx on node xxxx exited on signal 9 (Killed).",
         [{"kind": "signal", "rank": 1, "node": "xxxx", "signal": "SIGKILL", "exit_code": -9, "first": True}]),
        ("Abort(1) on node 5 (rank 5 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 5",
         [{"kind": "exit", "rank": 5, "exit_code": 1, "first": True}]),
        ("application called MPI_Abort(MPI_COMM_WORLD, 0) - process 2",  # with 0 it ends all others just the same
         [{"kind": "exit", "rank": 2, "first": True}]),
        (HYDRA,
         [{"kind": "signal", "rank": 3, "pid": 99, "node": "n7", "signal": "SIGKILL", "exit_code": -9, "first": True}]),
        ("/var/spool/slurmd/job7/slurm_script: line 12: 1234 Killed                  python train.py",
         [{"kind": "signal", "pid": 1234, "signal": "SIGKILL"}]),
        ("bash: line 1:  1234 Segmentation fault      (core dumped) python train.py",
         [{"kind": "signal", "pid": 1234, "signal": "SIGSEGV"}]),
        ("Segmentation fault (core dumped)", [{"kind": "signal", "signal": "SIGSEGV"}]),
        ("Killed", [{"kind": "signal", "signal": "SIGKILL"}]),
        ("[12345.678901] Out of memory: Killed process 1234 (python) total-vm:10kB, anon-rss:9kB",
         [{"kind": "oom", "pid": 1234, "signal": "SIGKILL"}]),
        ("Nov 20 12:00:18 gpu7 kernel: Memory cgroup out of memory: Killed process 1234 (pt_main_thread) total-vm:1kB",
         [{"kind": "oom", "pid": 1234, "host": "gpu7", "signal": "SIGKILL"}]),
        ("[1.000001] Out of memory: Kill process 1234 (python) score 900 or sacrifice child",
         [{"kind": "oom", "pid": 1234, "signal": "SIGKILL"}]),
        ("[12.345678] python[1234]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so.6[7f+1]",
         [{"kind": "signal", "pid": 1234, "signal": "SIGSEGV"}]),
        ("trainer-1   0/1     OOMKilled   0          5m", [{"kind": "oom", "node": "trainer-1", "signal": "SIGKILL"}]),
        ("      Reason:       OOMKilled", [{"kind": "oom", "signal": "SIGKILL"}]),
        ("[rank: 1] Child process with PID 1234 terminated with code 1. Forcefully terminating all other processes",
         [{"kind": "exit", "pid": 1234, "exit_code": 1, "first": True}]),
        (DEEPSPEED,
         [{"kind": "signal", "signal": "SIGKILL", "exit_code": -9}]),  # the command is that of the last local rank
        (DEEPSPEED.replace("local_rank=3", "local_rank=0"),
         [{"kind": "signal", "local_rank": 0, "signal": "SIGKILL", "exit_code": -9, "first": True}]),
        ("Process 0 exit with status code 137.",
         [{"kind": "signal", "rank": 0, "signal": "SIGKILL", "exit_code": 137}]),
        ("*** SIGSEGV (@0x10), see gl__________43#s15 received by PID 226 (TID 226) on cpu 10; stack trace: ***",
         [{"kind": "signal", "pid": 226, "signal": "SIGSEGV"}]),
        ("*** SIGTERM received at time=1700000000 on cpu 3 ***", []),
        ("x4213c4s7b0n0.hsn.cm: rank 27421 died from signal 6",
         [{"kind": "abort", "rank": 27421, "node": "x4213c4s7b0n0.hsn.cm", "signal": "SIGABRT", "exit_code": -6}]),
        ("x4417c3s5b0n0.hsn.cm: rank 48109 died from signal 15",
         [{"kind": "signal", "rank": 48109, "node": "x4417c3s5b0n0.hsn.cm", "signal": "SIGTERM", "exit_code": -15,
           "by_launcher": True}]),
        ("x3006c0s13b1n0.hsn.cm: rank 5 exited with code 0", []),
        ("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n\n=   EXIT CODE: 9\n",
         [{"kind": "signal", "signal": "SIGKILL", "exit_code": -9, "first": True}]),
        ("Return code: 1", [{"kind": "exit", "exit_code": 1}]),
        ("trainer-1 exited with code 137", [{"kind": "signal", "signal": "SIGKILL", "exit_code": 137}]),
        ("Process finished with exit code 1", [{"kind": "exit", "exit_code": 1}]),
        ("Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)",
         [{"kind": "signal", "signal": "SIGSEGV", "exit_code": 139}]),
        ("##[error]Process completed with exit code 2.", [{"kind": "exit", "exit_code": 2}]),
        ("ERROR: Job failed: exit status 1", [{"kind": "exit", "exit_code": 1}]),
        ("Return code: 0", []),
        ("Return code: 1\n1\n2\n3\nthe next step", []),
        ("Return code: 1\n===== 4 passed in 3.20s =====", []),
        ("Return code: 1\n===== 1 failed, 4 passed in 3.20s =====", [{"kind": "exit", "exit_code": 1}]),
        ("expected exit code 1 of the linter", []),
        ("Worker VllmWorkerProcess pid 71 died, exit code: -9",
         [{"kind": "signal", "pid": 71, "signal": "SIGKILL", "exit_code": -9, "first": True}]),
        ("Worker VllmWorkerProcess pid 71 died, exit code: -15", []),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
         [{"kind": "signal", "local_rank": 1, "signal": "SIGKILL", "first": True}]),
    ],
)  # fmt: skip
def test_launchers_shells_and_kernels_say_who_died(text: str, deaths: list[dict[str, Any]]) -> None:
    assert told(text) == deaths


def test_paddle_s_launcher_says_which_rank_failed() -> None:
    words = "Container rank 3 status failed cmd ['python', '-u', 'train.py'] code 1 log log/workerlog.3"
    [found] = read(f"LAUNCH ERROR 2022-11-21 02:35:54,385 Container failed !!!\n{words}\n").deaths
    assert (found.rank, found.exit_code, found.kind, found.is_own) == (3, 1, "exit", True)
    [victim] = read(f"Failed, NCCL error NCCLTools.h:227 'unhandled cuda error'\n{words}\n").deaths
    assert not victim.is_own


@cases(
    ("text", "signal"),
    [
        ("ProcessExitedException: process 0 terminated with exit code 3221225477", VIOLATION),
        ("Process finished with exit code -1073741819 (0xC0000005)", VIOLATION),
        (f"{AGENT}failed (exitcode: 3221225477) local_rank: 0 (pid: 9120) of binary: python", VIOLATION),
        ("Process finished with exit code 3221225786", "SIGINT"),
        ("Process finished with exit code 3221225999", "0xC000020F"),
        ("Process finished with exit code 3000000000", None),
    ],
)
def test_exit_codes_of_windows_are_what_ended_the_process(text: str, signal: str | None) -> None:
    assert {death.signal for death in read(text).deaths} <= {signal}
    assert signal is None or read(text).deaths


def test_tasks_that_are_ended_with_the_step_are_victims() -> None:
    text = """
srun: error: node01: task 3: Exited with exit code 1
srun: Terminating StepId=12.0
slurmstepd: error: *** STEP 12.0 ON node01 CANCELLED AT 2026-11-20T12:00:18 ***
srun: error: node01: tasks 0-1: Terminated
srun: error: node02: task 4: Killed
"""
    assert {d["rank"]: d.get("by_launcher", False) for d in told(text)} == {3: False, 0: True, 1: True, 4: True}


def test_ranks_that_hydra_killed_for_another_one_s_crash_are_victims() -> None:
    crashed = HYDRA.replace("RANK 3 PID 99", "RANK 1 PID 97").replace("9 (Killed)", "11 (Segmentation fault)")
    ends = {d["rank"]: (d["signal"], d.get("by_launcher", False)) for d in told(HYDRA + "\n" + crashed)}
    assert ends == {1: ("SIGSEGV", False), 3: ("SIGKILL", True)}
    assert [d.get("by_launcher", False) for d in told(HYDRA)] == [False]


def test_a_task_is_no_rank_where_each_task_is_a_launcher() -> None:
    text = "1: " + CLOSING + "srun: error: node01: task 1: Exited with exit code 1\n"
    assert [d.get("rank") for d in told("1: " + FAILED + text)] == [None, None, None]


def own(text: str) -> Death:
    deaths = read(text, "rank_4.log").deaths
    assert len(deaths) == 1
    return deaths[0]


def test_a_fatal_python_error_tells_the_signal_and_the_place() -> None:
    death = own(
        """
Fatal Python error: Segmentation fault

Thread 0x00007f0000000000 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 355 in wait

Current thread 0x00007f1111111111 (most recent call first):
  File "/usr/lib/python3.12/site-packages/x/y.py", line 2 in g
  File "/home/user/train.py", line 9 in main
"""
    )
    assert (death.kind, death.signal, death.rank) == ("signal", "SIGSEGV", 4)


def test_where_native_code_aborts_the_place_is_where_the_script_was_and_no_thread_of_ours() -> None:
    death = own(
        """
Fatal Python error: Aborted

Thread 0x00007f3ad15cd6c0 (most recent call first):
  File "/x/allready/live/beacon/thread.py", line 117 in _run

Thread 0x00007f3ad28b1b80 (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/home/user/train.py", line 3 in <module>
  File "/x/allready/live/beacon/main.py", line 105 in <module>
"""
    )
    assert (death.signal, str(death.site)) == ("SIGABRT", "/home/user/train.py:3 <module>")


def test_a_c_abort_and_pythons_word_on_it_are_one_death() -> None:
    death = own(
        """
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 0 PG GUID 0(default_pg) Rank 4] Process group watchdog thread terminated with exception: timeout
Fatal Python error: Aborted
"""
    )
    assert (death.kind, death.signal, death.is_collective_error) == ("abort", "SIGABRT", True)
    assert "watchdog thread terminated" in death.text


@pytest.mark.parametrize(
    "why", ["JAX distributed service detected fatal errors", "coordinator detected missing heartbeats"]
)
def test_a_jax_process_that_ends_itself_is_a_victim(why: str) -> None:
    death = own(
        f"F1120 12:00:18.000000  77 client.h:80] Terminating process because the {why}. This most likely "
        "indicates that another task died"
    )
    assert (death.kind, death.is_collective_error, death.rank) == ("abort", True, 4)


def test_the_watchdog_says_that_it_ends_its_rank() -> None:
    death = read(
        "[rank3]:[E1120 11:51:03.7 ProcessGroupNCCL.cpp:689] [Rank 1] To avoid data inconsistency, we are taking the"
        " entire process down."
    ).deaths[0]
    assert (death.rank, death.kind, death.is_collective_error) == (3, "abort", True)


def test_an_error_file_is_read() -> None:
    text = (
        '{"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": '
        '"Traceback (most recent call last):\\n  File \\"/home/user/train.py\\", line 9, in main\\n    f()\\n'
        'ValueError: bad\\n", "timestamp": "1795176018"}}}'
    )
    for part in (text, text[: text.index('", "timestamp')]):
        death = read(part, "run_1/attempt_0/2/error.json").deaths[0]
        assert (death.kind, death.local_rank, death.text, str(death.site)) == (
            "exception",
            2,
            "ValueError: bad",
            "/home/user/train.py:9 main",
        )
    assert read(text).deaths[0].time_s == 1_795_176_018.0


@cases(
    "text",
    [
        "iteration: 3: Killed time",
        "loss: 0.3, exit code 0",
        "the process was Killed by the author in the story",
        "[INFO] exits with return code = 0",
        "Rank 0 terminated with great success",
        "[rank0]:[W1120 11:52:02.3 ProcessGroupNCCL.cpp:1575] Warning: destroy_process_group() was not called",
        "Root Cause analysis follows",
        "Failures: 0",
        "if reason != 'OOMKilled': retry()",
    ],
)
def test_harmless_words_kill_nobody(text: str) -> None:
    assert told(text) == []


EXITED = "E1120 11:51:27.492000 1260 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: 2) "
EXITED += "local_rank: 0 (pid: 3049) of binary: /usr/bin/python3\n"


@cases(
    "words",
    [
        "train.py: error: unrecognized arguments: --local-rank=0",
        "python: can't open file '/w/train.py': [Errno 2] No such file or directory",
        "bash: torchrun: command not found",
        "ModuleNotFoundError: No module named 'flash_attn'",
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
    ],
)
def test_the_last_words_before_an_exit_code_are_kept(words: str) -> None:
    [death] = read(f"usage: train.py\n       [-h]\n{words}\n{EXITED}").deaths
    assert (death.kind, death.exit_code, death.last_words) == ("exit", 2, words)


@cases(
    "words",
    [
        "step 3 loss 2.5",
        "RuntimeError: Horovod has been shut down. This was caused by an exception on one of the ranks",
        "RuntimeError: Connection closed by peer [10.0.0.1]:1",
        "2026-11-20 12:00:18,000 - loader - ERROR - train.py: error: once more",
        "srun: error: n1: task 0: Exited with exit code 1",
        "slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused",
    ],
)
def test_echoes_and_ordinary_lines_are_no_last_words(words: str) -> None:
    assert {d.last_words for d in read(f"{words}\n{EXITED}").deaths} == {""}


@cases(
    "above, expected",
    [
        (["error: the tokenizer has 32000 tokens"], "error: the tokenizer has 32000 tokens"),
        (["cannot open the shard list", "", "-" * 40], "cannot open the shard list"),
        (["cannot open the shard list", "using the cached copy"], ""),
        (["failed, retrying", *(f"step {n} loss 0.4" for n in range(3))], ""),
        (["step 7 loss 0.4"], ""),
    ],
)
def test_what_a_program_complains_of_right_before_its_end_is_its_last_word(above: list[str], expected: str) -> None:
    text = "\n".join([*(f"step {n} loss 2.5" for n in range(40)), *above, EXITED])
    deaths = interpret(scan(io.BytesIO(text.encode())), "out.log", mtime_s=None).deaths
    assert {d.last_words for d in deaths} == {expected}


def test_a_shells_word_alone_is_an_end_where_nothing_follows() -> None:
    for behind, expected in (([], ["SIGTERM"]), ([f"step {n} loss 2.5" for n in range(9)], [])):
        text = "\n".join([*(f"step {n} loss 2.5" for n in range(40)), "Terminated", *behind, ""])
        deaths = interpret(scan(io.BytesIO(text.encode())), "out.log", mtime_s=None).deaths
        assert [d.signal for d in deaths] == expected


def test_last_words_of_another_task_are_not_taken() -> None:
    text = "1: train.py: error: bad\n0: " + EXITED + "0: more\n1: more\n"
    assert [d.last_words for d in read(text).deaths] == [""]


def test_an_exception_of_a_launcher_is_the_reason_of_its_tasks_exit_and_of_no_rank() -> None:
    text = """
Traceback (most recent call last):
  File "/env/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/env/lib/python3.10/site-packages/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py", line 635, in run
    raise RendezvousClosedError()
torch.distributed.elastic.rendezvous.api.RendezvousClosedError
srun: error: n1: task 1: Exited with exit code 1
"""
    [death] = read(text).deaths
    assert (death.kind, death.rank, death.node, death.exit_code) == ("exception", None, "n1", 1)
    assert death.is_collective_error


def test_tasks_of_srun_that_run_a_launcher_are_no_ranks() -> None:
    text = """
Traceback (most recent call last):
  File "/env/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.rendezvous.api.RendezvousClosedError
srun: error: n1: task 1: Exited with exit code 1
srun: error: n2: task 2: Exited with exit code 1
"""
    deaths = read(text).deaths
    assert {d.rank for d in deaths} == {None}
    assert {d.last_words for d in deaths if d.kind == "exit"} == {
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError"
    }


def test_a_launcher_that_crashes_is_no_rank() -> None:
    fatal = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f4ebf9d3740 (most recent call first):\n"
    frame = '  File "{}", line 31 in get_all\n'
    own = read(fatal + frame.format("/app/train.py"), "rank_3/stderr.log").deaths
    assert [(d.rank, d.signal) for d in own] == [(3, "SIGSEGV")]
    agents = fatal + frame.format("/x/site-packages/torch/distributed/elastic/agent/server/api.py")
    assert [(d.rank, d.signal) for d in read(agents, "rank_3/stderr.log").deaths] == [(None, "SIGSEGV")]


def test_a_fatal_error_and_its_table_are_one_death() -> None:
    text = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f4ebf9d3740 (most recent call first):\n"
    text += '  File "/app/train.py", line 31 in step\n' + EXITED.replace("exitcode: 2", "exitcode: -11")
    deaths = read(text).deaths
    assert {d.signal for d in deaths} == {"SIGSEGV"}


@pytest.mark.parametrize(
    ("function", "file"), [("_feed", "/usr/lib/python3.11/multiprocessing/queues.py"), ("__del__", "/srv/app/cache.py")]
)
def test_what_python_throws_away_ends_no_process(function: str, file: str) -> None:
    """Beside each other's lines, the header of `Exception ignored in` covers only one of them."""
    lines = [
        "Traceback (most recent call last):",
        f'  File "{file}", line 241, in {function}',
        "    close()",
        '  File "/srv/app/more.py", line 3, in close',
        "    handle.close()",
        "OSError: [Errno 9] Bad file descriptor",
    ]
    assert not read_lines(lines, "out.log", mtime_s=1.0).deaths
    other = [line.replace(function, "main").replace(file, "/srv/app/main.py") for line in lines]
    assert [d.text for d in read_lines(other, "out.log", mtime_s=1.0).deaths] == [
        "OSError: [Errno 9] Bad file descriptor"
    ]


OPEN = [
    "Traceback (most recent call last):",
    '  File "/srv/app/up.py", line 9, in upload',
    "    send()",
    "OSError: no way",
]


@pytest.mark.parametrize("before", ["Training finished", "could not upload, ignoring:", "Total training time: 1:23:45"])
def test_a_traceback_behind_a_good_end_or_announced_as_ignored_is_no_death(before: str) -> None:
    (death,) = read_lines(OPEN, "out.log", mtime_s=1.0).deaths
    assert death.is_open
    assert not read_lines(["epoch 3 loss 0.1", before, *OPEN], "out.log", mtime_s=1.0).deaths


@pytest.mark.parametrize("before", [["Epoch 1 completed"], ["run 3 done"], ["Training finished", "epoch 4 loss 0.1"]])
def test_an_epoch_that_is_completed_is_no_good_end(before: list[str]) -> None:
    assert len(read_lines([*before, *OPEN], "out.log", mtime_s=1.0).deaths) == 1


def test_last_words_are_not_looked_for_above_progress() -> None:
    exit_ = (
        "torch.distributed.elastic.multiprocessing.api: failed (exitcode: 1) local_rank: 3 (pid: 77) of binary: python"
    )
    words = "metrics.errors.CommError: Connection refused"
    for between, expected in (("", words), ("step 7 loss 0.4", "")):
        found = read_lines([words, *filter(None, [between]), exit_], "out.log", mtime_s=1.0).deaths
        assert [d.last_words for d in found] == [expected]


OPAL = """\
[gpu02:21183] *** Process received signal ***
[gpu02:21183] Signal: Segmentation fault (11)
[gpu02:21183] Signal code: Address not mapped (1)
[gpu02:21183] Failing at address: 0x8
[gpu02:21183] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x42520)[0x7f2c5c442520]
[gpu02:21183] *** End of error message ***
"""
ABORTED = OPAL.replace("Segmentation fault (11)", "Aborted (6)").replace(" Address not mapped (1)", "  (-6)")
TERMINATE = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  shard 7 is corrupt\n"
NOTICED = """\
--------------------------------------------------------------------------
prterun noticed that process rank 5 with PID 21183 on node gpu02 exited on
signal 11 (Segmentation fault).
"""


@pytest.mark.parametrize("prefix", ["", "[1,5]<stderr>:", "5: "])
def test_the_handler_of_open_mpi_says_who_got_which_signal_and_why(prefix: str) -> None:
    death = read("".join(prefix + line + "\n" for line in OPAL.splitlines())).deaths[0]
    assert (death.kind, death.pid, death.host, death.signal) == ("signal", 21183, "gpu02", "SIGSEGV")
    assert death.last_words == "Segmentation fault, address not mapped at 0x8"
    assert death.rank == (5 if prefix else None)


def test_open_mpi_s_handler_and_its_launcher_tell_one_death() -> None:
    deaths = read(OPAL + NOTICED).deaths
    assert [(d.rank, d.pid, d.signal, d.node, d.first) for d in deaths] == [(5, 21183, "SIGSEGV", "gpu02", True)]
    assert "not mapped" in deaths[0].last_words


def test_an_uncaught_exception_is_the_reason_of_the_abort_that_follows_it() -> None:
    deaths = read(TERMINATE + ABORTED + NOTICED.replace("signal 11 (Segmentation fault)", "signal 6 (Aborted)")).deaths
    assert [(d.rank, d.pid, d.signal) for d in deaths] == [(5, 21183, "SIGABRT")]
    assert deaths[0].last_words == "std::runtime_error: shard 7 is corrupt"


def test_words_of_an_uncaught_exception_are_found_behind_what_another_thread_wrote_in_between() -> None:
    """torch's recorder writes its own error with a stack while the watchdog ends the process."""
    first, words = TERMINATE.splitlines(keepends=True)
    between = "".join(
        f"frame #{n}: c10d::FlightRecorder::update_state() + 0x{n:02x} (0x7f9d in lib.so)\n" for n in range(28)
    )
    [death] = read(first + "Failed to update state for entry 160\n" + between + words).deaths
    assert death.last_words == "std::runtime_error: shard 7 is corrupt"
    assert [d.last_words for d in read(first + "epoch 1\n" * 20 + words).deaths] == ["std::runtime_error"]


def test_of_two_processes_that_end_in_one_file_the_first_is_the_first_to_go_on() -> None:
    first, words = TERMINATE.splitlines(keepends=True)
    other = first.replace("runtime_error", "logic_error")
    lines = first + other + words + words.replace("shard 7 is corrupt", "no such shard")
    assert read(lines).deaths[0].last_words == "std::runtime_error: shard 7 is corrupt"
    assert all(d.last_words != "std::logic_error: shard 7 is corrupt" for d in read(lines).deaths)
    assert read(first + words + other + words.replace("shard 7 is corrupt", "no such shard")).deaths[0].last_words


def test_where_two_ranks_abort_in_one_file_nobody_knows_whose_words_they_are() -> None:
    deaths = read(TERMINATE + ABORTED + ABORTED.replace("21183", "21184")).deaths
    assert {d.pid: d.last_words for d in deaths if d.pid} == {21183: "", 21184: ""}


@cases(
    ("lines", "signal", "pid"),
    [
        ("[hpc-1:229246:0:229250] Caught signal 7 (Bus error: nonexistent physical address)", "SIGBUS", 229246),
        ("[hpc-1:229246:0:229250] Caught signal 11 (Segmentation fault: Sent by the kernel at address (nil))",
         "SIGSEGV", 229246),
        ("[hpc-1:6031 :0:6031] Caught signal 11 (Segmentation fault: invalid permissions)", "SIGSEGV", 6031),
        ("*** SIGSEGV (@0x8) received by PID 4242 (TID 0x7f8d0c0a1740) from PID 8; stack trace: ***", "SIGSEGV", 4242),
        ("*** Signal 11 (SIGSEGV) (0x0) received by PID 56168 (pthread TID 0x7f11) (code: x), stack trace: ***",
         "SIGSEGV", 56168),
        ("(RayWorkerWrapper pid=233, ip=10.20.1.125) *** SIGSEGV received at time=1762945937 on cpu 6 ***", "SIGSEGV",
         233),
    ],
)  # fmt: skip
def test_other_handlers_of_signals(lines: str, signal: str, pid: int) -> None:
    [death] = read(lines).deaths
    assert (death.signal, death.pid, death.by_launcher) == (signal, pid, False)


def test_a_handler_knows_the_process_and_srun_the_rank() -> None:
    ucx = "[hpc-1:229246:0:229250] Caught signal 7 (Bus error: nonexistent physical address)\n"
    [death] = read(ucx + "srun: error: hpc-1: task 3: Bus error (core dumped)\n").deaths
    assert (death.rank, death.pid, death.signal) == (3, 229246, "SIGBUS")
    other = read(ucx + "srun: error: hpc-2: task 3: Bus error (core dumped)\n").deaths
    assert sorted((d.rank or 0, d.pid or 0) for d in other) == [(0, 229246), (3, 0)]


def test_a_rank_that_left_without_finalize_is_named_by_mpirun() -> None:
    line = (
        "mpirun has exited due to process rank 11 with PID 10211 on\nnode compute-12-23 exiting improperly. There are"
    )
    assert told(line) == [{"kind": "exit", "rank": 11, "node": "compute-12-23", "pid": 10211, "first": True}]


@pytest.mark.parametrize(
    "line",
    [
        "F0321 12:34:56.789012 12345 shards.cc:123] Check failed: fd >= 0 (-1 vs. 0) cannot open shard",
        "F0000 00:00:1718200000.123456   12345 shards.cc:123] Check failed: fd >= 0 (-1 vs. 0) cannot open shard",
        "2024-03-01 10:00:00.123456: F external/data/shards.cc:123] Check failed: fd >= 0 (-1 vs. 0) cannot open shard",
    ],
)
def test_a_fatal_line_is_the_reason_of_the_abort(line: str) -> None:
    trace = "*** Check failure stack trace: ***\n    @     0x7f8d0c0a1a2b  google::LogMessage::Fail()\n"
    handler = "*** SIGABRT (@0x1f) received by PID 4242 (TID 0x7f8d) from PID 4242; stack trace: ***\n"
    for text, pid in ((f"{line}\n{trace}{handler}", 4242), (f"{line}\n{trace}Aborted (core dumped)\n", None)):
        [death] = read(text).deaths
        assert (death.kind, death.pid) == ("abort", pid)
        assert death.last_words.endswith("shards.cc:123: Check failed: fd >= 0 (-1 vs. 0) cannot open shard")


def test_the_first_thread_has_the_number_of_its_process() -> None:
    fatal = "F0321 12:34:56.789012 {} shards.cc:123] Check failed: fd >= 0 (-1 vs. 0)\n"
    for thread, ranks in ((1281, {3}), (1299, {None, 3})):
        deaths = read(fatal.format(thread) + FAILED.replace("-9", "-6") + TABLE.replace("-9", "-6")).deaths
        assert {d.rank for d in deaths if d.signal == "SIGABRT" or d.last_words} == ranks


@cases(
    "text",
    [
        "E0321 12:34:56.789012 12345 shards.cc:123] Check failed: fd >= 0 (-1 vs. 0), retrying",
        "0: *** SIGTERM received at time=1759954468 on cpu 5 ***",
        "*** SIGTERM (@0x3e8000007d0) received by PID 4242 (TID 0x7f8d0c0a1740) from PID 1; stack trace: ***",
        "[gpu02:21183] Signal: Terminated (15)",
        "INFO pre-flight: Check failed: no",
    ],
)
def test_orders_and_mere_errors_are_no_deaths(text: str) -> None:
    assert told(text) == []


LOST = (
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    "  what():  Process group watchdog thread terminated with exception: timeout\n"
)


def test_ranks_that_a_library_aborted_are_not_accused_by_their_handlers() -> None:
    """Each prints the same two blocks, one after the other or all mixed."""
    ranked = LOST.replace("Process group", "[PG ID 0 PG GUID 0(default_pg) Rank {}] Process group")
    for words in (LOST, ranked):
        _are_victims([(words.format(pid), ABORTED.replace("21183", str(pid))) for pid in (21183, 21184, 21185)])


def _are_victims(blocks: list[tuple[str, str]]) -> None:
    for text in ("".join(a + b for a, b in blocks), "".join(a for a, _ in blocks) + "".join(b for _, b in blocks)):
        deaths = read(text).deaths
        assert {d.pid for d in deaths if d.pid} == {21183, 21184, 21185}
        assert all(d.is_collective_error for d in deaths)


def test_an_exception_is_that_of_the_rank_that_mpirun_saw_leave() -> None:
    raised = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in <module>\nValueError: bad\n'
    left = "mpirun has exited due to process rank 11 with PID 10211 on\nnode n12 exiting improperly. There are three\n"
    [death] = read(raised + left).deaths
    assert (death.rank, death.kind, death.text) == (11, "exception", "ValueError: bad")


def test_the_file_of_a_rank_tells_whose_handler_it_is() -> None:
    death = own(LOST + ABORTED)
    assert (death.rank, death.pid, death.is_collective_error) == (4, 21183, True)
    death = own(OPAL)
    assert (death.rank, death.pid, death.is_collective_error) == (4, 21183, False)
    nccl = "gpu02:77:80 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>\n"
    assert {(d.rank, d.pid) for d in read(nccl + OPAL, "rank_4.log").deaths} == {(None, 21183)}  # a child of it


@pytest.mark.parametrize(
    "line",
    [
        "F1120 12:00:18.000000  77 pjrt_client.cc:80] Check failed: status is OK (INTERNAL: NCCL operation failed)",
        "F0000 00:00:1718200000.123456 77 client.cc:80] Check failed: s is OK (UNAVAILABLE: Connection reset by peer)",
    ],
)
def test_a_check_that_failed_for_want_of_a_peer_is_no_reason(line: str) -> None:
    [death] = read(line).deaths
    assert death.is_collective_error


JAX_ENDS = (
    "F1123 02:47:43.266962    {tid} client.h:86] Terminating process because the JAX distributed service detected "
    "fatal errors. This most likely indicates that another task died; see the other task logs for more details.\n"
)
SIGNAL_6 = AGENT + "failed (exitcode: -6) local_rank: {local} (pid: {pid}) of binary: /usr/bin/python3\n"


def test_who_was_ended_by_jax_did_not_abort_for_a_reason_of_its_own() -> None:
    """Another thread wrote the last output, so that nothing but the order says that they are this process's."""
    words, told = read(JAX_ENDS.format(tid=3616) + SIGNAL_6.format(local=0, pid=3567)).deaths
    assert (told.signal, told.pid, told.local_rank) == ("SIGABRT", 3567, 0)
    assert words.is_collective_error
    assert told.is_collective_error


def test_as_many_aborts_as_a_library_brought_about_have_no_other_reason() -> None:
    words = JAX_ENDS.format(tid=1) + JAX_ENDS.format(tid=2)
    both = SIGNAL_6.format(local=0, pid=11) + SIGNAL_6.format(local=1, pid=12)
    told = [d for d in read(words + both).deaths if d.pid is not None]
    assert [(d.pid, d.is_collective_error) for d in told] == [(11, True), (12, True)]
    told = [d for d in read(words + both + SIGNAL_6.format(local=2, pid=13)).deaths if d.pid is not None]
    assert not any(d.is_collective_error for d in told)


def test_an_abort_before_any_last_words_is_not_theirs() -> None:
    told = read(SIGNAL_6.format(local=0, pid=3567) + JAX_ENDS.format(tid=3616)).deaths
    assert [d.is_collective_error for d in told if d.pid == 3567] == [False]


def test_two_lines_on_one_abort_do_not_excuse_another_process() -> None:
    words = (
        "terminate called after throwing an instance of 'gloo::IoException'\n"
        "  what():  [pair.cc:553] Connection closed by peer [127.0.0.1]:50339\n"
        "Fatal Python error: Aborted\n\n"
    )
    one, other = SIGNAL_6.format(local=0, pid=11), SIGNAL_6.format(local=1, pid=12)
    assert [d.is_collective_error for d in read(words + one).deaths if d.pid] == [True]
    assert [d.is_collective_error for d in read(words + one + other).deaths if d.pid] == [False, False]


def test_a_traceback_that_other_lines_tear_is_whole() -> None:
    torn = [
        "Traceback (most recent call last):",
        "Step: 99 (0) | Loss: 1.81973 | Lr: 1.1e-06",
        "Generating samples at epoch 0",
        '  File "/w/train.py", line 166, in <module>',
        "    image = grid(x, (2, 2))",
        "NameError: name 'cmocean' is not defined",
    ]
    assert [death.text for death in read_lines(torn, "job.out").deaths] == ["NameError: name 'cmocean' is not defined"]


def test_a_logged_exception_with_many_lines_behind_it_ended_nothing() -> None:
    logged = [
        "17:40:27,845 graph.extractor ERROR error extracting graph",
        "Traceback (most recent call last):",
        '  File "/w/extract.py", line 127, in __call__',
        "    result = await process(text)",
        "json.decoder.JSONDecodeError: Expecting value: line 10 column 1 (char 9)",
    ]
    behind = [f"17:44:{n:02d},823 httpx INFO HTTP Request: POST https://a.b/c 200 OK" for n in range(60)]
    stream = io.BytesIO("".join(f"{line}\n" for line in (*logged, *behind)).encode())
    assert interpret(scan(stream), "job.out", mtime_s=None).deaths == []
    stream = io.BytesIO("".join(f"{line}\n" for line in logged).encode())
    assert len(interpret(scan(stream), "job.out", mtime_s=None).deaths) == 1


def test_the_last_line_of_a_file_is_kept_where_its_name_says_whose_it_is() -> None:
    def record(source: str) -> tuple[int | None, str]:
        reading = interpret(scan(io.BytesIO(b"rank 1: starting\nbad config\n\n")), source, mtime_s=None)
        return reading.source.rank, reading.source.last_line

    assert record("run/attempt0/node0/rank1/out.log") == (1, "bad config")
    assert record("run/train.log") == (None, "")
