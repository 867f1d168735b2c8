"""Exceptions in the words of Python."""

from pathlib import Path

import pytest

from allready.evidence.inputs import Found
from allready.evidence.log.tracebacks import Failure, read_text
from allready.evidence.readers import read_found
from allready.model import Death
from tests.cases import cases
from tests.evidence.log.reading import read

SITE = "/home/user/train.py:22 step"
PLAIN = """\
Traceback (most recent call last):
  File "/home/user/train.py", line 40, in <module>
    main()
  File "/home/user/train.py", line 22, in step
    raise ValueError('bad sample in shard 17')
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: bad sample in shard 17
"""


BAD = "ValueError: bad sample in shard 17"


def ranked(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def deaths(text: str) -> list[Death]:
    return list(read(text).deaths)


def death(text: str, source: str = "out.log") -> Death:
    """The only death that the text tells."""
    deaths = read(text, source).deaths
    assert len(deaths) == 1, deaths
    return deaths[0]


def test_an_exception_is_a_death_with_its_words_and_its_place() -> None:
    found = death(ranked(2, PLAIN))
    assert (found.kind, found.rank, found.text, str(found.site)) == (
        "exception",
        2,
        "ValueError: bad sample in shard 17",
        SITE,
    )
    assert (found.origin.line, found.is_collective_error, found.by_launcher, found.first) == (1, False, False, False)


@cases("prefix", ["", "3: ", "[default1]:", "[1,3]<stderr>:", "worker-1  | ", "[pod/w-1/train] ",
                                    "2026-11-20T12:00:18.000000001Z ", "(Worker pid=7, ip=10.0.0.2) "])  # fmt: skip
def test_a_traceback_is_read_through_any_prefix(prefix: str) -> None:
    found = death("".join(prefix + line + "\n" for line in PLAIN.splitlines()))
    assert (found.text, str(found.site)) == ("ValueError: bad sample in shard 17", SITE)


def test_what_the_runtime_writes_is_no_word_of_the_exception() -> None:
    text = PLAIN.replace(BAD, "KeyboardInterrupt\nterminate called without an active exception")
    assert death(text).text == "KeyboardInterrupt"


def test_what_told_a_task_to_end_is_the_cause_and_not_its_cancellation() -> None:
    chain = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    cancelled = PLAIN.replace(BAD, "asyncio.exceptions.CancelledError").rstrip()
    assert death(cancelled + chain + PLAIN.replace(BAD, "KeyboardInterrupt")).text == "KeyboardInterrupt"
    other = cancelled + chain + PLAIN.replace(BAD, "OSError: closed")
    assert death(other).text == "asyncio.exceptions.CancelledError"  # which failed while it was cleaned up


def test_what_was_asserted_is_the_message_of_an_assertion_that_has_none() -> None:
    bare = PLAIN.replace(BAD, "AssertionError").replace(
        "raise ValueError('bad sample in shard 17')", "assert not args.bf16"
    )
    assert death(bare).text == "AssertionError: assert not args.bf16"
    assert death(bare.replace("AssertionError", "AssertionError: both given")).text == "AssertionError: both given"


def test_errors_that_a_message_counts_are_named() -> None:
    counted = "pydantic.ValidationError: 1 validation error for Options\n  Value error, depth is 9 [type=value_error]"
    assert "depth is 9" in death(PLAIN.replace(BAD, counted)).text


def test_a_message_that_another_process_broke_is_found_below() -> None:
    torn = "FileNotFoundError:     loss = step(batch)\n    total += loss\n[Errno 2] No such file or directory: 'a.npy'"
    assert death(PLAIN.replace(BAD, torn)).text.endswith("No such file or directory: 'a.npy'")


def test_modules_of_cython_and_commands_of_packages_are_no_place_of_the_program() -> None:
    inner = f'  File "h5py/h5f.pyx", line 122, in h5py.h5f.create\n{BAD}'
    assert str(death(PLAIN.replace(BAD, inner)).site) == SITE


def test_a_logged_exception_counts_where_the_last_one_points_at_it() -> None:
    row = "ERROR 08-14 19:25:05 [multiproc_executor.py:597] "
    inner = PLAIN.replace(BAD, "RuntimeError: no kernel").replace("<module>", "worker_main")
    logged = "".join(row + line + "\n" for line in inner.splitlines())
    more = "INFO 08-14 19:25:06 [loader.py:10] another line\n" * 45
    last = PLAIN.replace(BAD, "Exception: start failed. See stack trace for root cause.")
    assert "RuntimeError: no kernel" in [d.text for d in deaths(logged + more + last)]
    silent = PLAIN.replace(BAD, "Exception: start failed.")
    assert [d.text for d in deaths(logged + more + silent)] == ["Exception: start failed."]


def test_a_test_that_failed_has_not_caught_its_exception() -> None:
    block = PLAIN.replace("<module>", "test_speed").replace(BAD, "AssertionError: 79 > 45")
    ended = "\nRan 1 test in 3.000s\n\n{how}\nbackup of logs\none more line\nand another\nlast line\n"
    assert [d.text for d in deaths(block + ended.format(how="FAILED (failures=1)"))] == ["AssertionError: 79 > 45"]
    assert deaths(block + ended.format(how="OK")) == []


def test_interleaved_tracebacks_are_taken_apart() -> None:
    one = ranked(0, PLAIN).splitlines()
    other = ranked(1, PLAIN.replace("ValueError: bad", "KeyError: 'no'")).splitlines()
    mixed = [line for pair in zip(one, other, strict=True) for line in pair]
    deaths = read("\n".join(mixed)).deaths
    assert {d.rank: d.text for d in deaths} == {
        0: "ValueError: bad sample in shard 17",
        1: "KeyError: 'no' sample in shard 17",
    }


def test_other_output_between_the_lines_does_no_harm() -> None:
    lines = ranked(2, PLAIN).splitlines()
    lines[3:3] = [
        "iteration: 30",
        "[rank1]:[W1120 11:52:02.305490562 Utils.hpp:137] Warning: text",
        "vm:1:1 [0] NCCL INFO x",
    ]
    assert death("\n".join(lines)).text == "ValueError: bad sample in shard 17"


@cases(
    "joint",
    [
        "The above exception was the direct cause of the following exception:",
        "During handling of the above exception, another exception occurred:",
    ],
)
@cases("is_ranked", [True, False])
def test_the_first_of_a_chain_is_the_cause(joint: str, is_ranked: bool) -> None:
    text = PLAIN + f"\n{joint}\n\n" + PLAIN.replace("ValueError", "RuntimeError").replace("line 22", "line 99")
    found = death(ranked(4, text) if is_ranked else text)
    assert (found.text, str(found.site)) == ("ValueError: bad sample in shard 17", SITE)


POOR = """\
Traceback (most recent call last):
  File "/w/parse.py", line 202, in find
    path = runs[-1]
IndexError: list index out of range

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/w/train.py", line 10, in <module>
    find()
  File "/w/parse.py", line 204, in {function}
    {source}
ValueError: no runs in /logs
"""


@cases(
    "function, source, words",
    [
        ("find", 'raise ValueError("no runs in /logs")', "ValueError: no runs in /logs"),
        ("load", 'raise ValueError("no runs in /logs")', "IndexError: list index out of range"),
        ("find", "tell(path)", "IndexError: list index out of range"),
    ],
)
def test_who_looks_for_something_in_vain_may_say_so_better(function: str, source: str, words: str) -> None:
    assert death(ranked(0, POOR.format(function=function, source=source))).text == words


MISFIT = """\
Traceback (most recent call last):
  File "/w/config.py", line 52, in __init__
    text = base64.b64decode(given)
  File "{library}", line 88, in b64decode
    return binascii.a2b_base64(s)
{first}

{joint}

Traceback (most recent call last):
  File "/w/train.py", line 14, in <module>
    main()
  File "/w/config.py", line 55, in {function}
    raise ValueError(
{second}
"""
PYTHONS = "/opt/env/lib/python3.12/base64.py"
MISFITS = ("binascii.Error: Incorrect padding", "ValueError: no such file and no base64 text: ../zero2.json")
CAUGHT = "During handling of the above exception, another exception occurred:"


@cases(
    "library, first, joint, function, second, said",
    [
        (PYTHONS, MISFITS[0], CAUGHT, "__init__", MISFITS[1], MISFITS[1]),
        # Only where the function that tried says so, in more words, and not that the other is the cause.
        (PYTHONS, MISFITS[0], CAUGHT, "load", MISFITS[1], MISFITS[0]),
        (PYTHONS, MISFITS[0], CAUGHT, "__init__", "ValueError: bad", MISFITS[0]),
        (
            PYTHONS,
            MISFITS[0],
            "The above exception was the direct cause of the following exception:",
            "__init__",
            MISFITS[1],
            MISFITS[0],
        ),
        # What another library or the system says is the reason.
        ("/opt/env/lib/python3.12/site-packages/codec.py", MISFITS[0], CAUGHT, "__init__", MISFITS[1], MISFITS[0]),
        (PYTHONS, "OSError: disk quota", CAUGHT, "__init__", MISFITS[1], "OSError: disk quota"),
    ],
)
def test_what_a_function_had_expected_says_more_than_what_one_try_of_it_met(
    library: str, first: str, joint: str, function: str, second: str, said: str
) -> None:
    text = MISFIT.format(library=library, first=first, joint=joint, function=function, second=second)
    assert death(ranked(0, text)).text == said


def test_a_group_dies_of_its_first_member() -> None:
    found = death(
        """
  + Exception Group Traceback (most recent call last):
  |   File "/home/user/train.py", line 5, in <module>
  |     raise ExceptionGroup("several", errors)
  | ExceptionGroup: several (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/user/train.py", line 22, in step
    |     raise ValueError("bad")
    | ValueError: bad
    +---------------- 2 ----------------
    | TypeError: other
    +------------------------------------
"""
    )
    assert (found.text, str(found.site)) == ("ValueError: bad", SITE)


def test_the_original_of_a_loader_is_the_cause() -> None:
    found = death(
        ranked(
            1,
            """\
Traceback (most recent call last):
  File "/home/user/train.py", line 40, in <module>
    for batch in loader:
  File "/usr/lib/python3.12/site-packages/torch/utils/data/dataloader.py", line 701, in __next__
    data = self._next_data()
FileNotFoundError: Caught FileNotFoundError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/torch/utils/data/_utils/worker.py", line 351, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/user/train.py", line 22, in step
    open(name)
FileNotFoundError: [Errno 2] No such file or directory: 'shard-17'
""",
        )
    )
    assert found.text == "FileNotFoundError: [Errno 2] No such file or directory: 'shard-17'"
    assert str(found.site) == SITE


def test_a_spawned_child_is_named_by_its_parent() -> None:
    found = death(
        """
Traceback (most recent call last):
  File "/home/user/train.py", line 40, in <module>
    mp.spawn(worker, nprocs=4)
  File "/usr/lib/python3.12/site-packages/torch/multiprocessing/spawn.py", line 340, in spawn
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 3 terminated with the following error:
Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/torch/multiprocessing/spawn.py", line 90, in _wrap
    fn(i, *args)
  File "/home/user/train.py", line 22, in step
    raise ValueError("bad")
ValueError: bad
"""
    )
    assert (found.local_rank, found.rank, found.text, str(found.site)) == (3, None, "ValueError: bad", SITE)


SPAWN = """
Traceback (most recent call last):
  File "/home/user/train.py", line 40, in <module>
    main()
  File "/home/user/train.py", line 35, in main
    mp.spawn(worker, nprocs=4)
  File "/usr/lib/python3.12/site-packages/torch/multiprocessing/spawn.py", line 215, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException: 

-- Process 3 terminated with the following error:
Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/torch/multiprocessing/spawn.py", line 90, in _wrap
    fn(i, *args)
  File "/home/user/train.py", line 22, in step
    raise ValueError("bad")
ValueError: bad
"""  # noqa: W291


@cases("parent", ["torch.multiprocessing.spawn.ProcessRaisedException: ", "Exception: "])
@cases("gap", ["\n\n", "\n", "\n\n\n"])
def test_where_a_spawned_child_failed_is_told_by_its_own_traceback(parent: str, gap: str) -> None:
    text = SPAWN.replace("torch.multiprocessing.spawn.ProcessRaisedException: \n\n", f"{parent}{gap}")
    found = death(text)
    assert (found.local_rank, found.text, str(found.site)) == (3, "ValueError: bad", SITE)
    found = death(text.removesuffix("ValueError: bad\n"))  # the file ends before the exception
    assert (found.local_rank, found.text, str(found.site)) == (3, "Exception", SITE)
    found = death(text.partition('Traceback (most recent call last):\n  File "/usr')[0])
    assert (found.local_rank, found.text, found.site) == (3, "Exception", None)
    found = death(text.partition("\n--")[0])
    assert (found.local_rank, found.site) == (None, None)


def test_a_spawned_child_is_named_without_the_words_of_its_parent() -> None:
    lines = SPAWN.strip().splitlines()
    found = death("\n".join(lines[lines.index("-- Process 3 terminated with the following error:") :]))
    assert (found.local_rank, found.text, str(found.site)) == (3, "ValueError: bad", SITE)


def test_the_parent_of_a_spawned_child_raised_nothing_of_its_own() -> None:
    parent = SPAWN.partition("torch.multiprocessing.spawn.Process")[0]
    for name in ("torch.multiprocessing.spawn.ProcessExitedException", "Exception"):
        found = death(f"{parent}{name}: process 2 terminated with exit code 1")
        assert (found.kind, found.local_rank, found.exit_code, found.site) == ("exit", 2, 1, None)
        found = death(f"{parent}{name}: process 0 terminated with signal SIGKILL")
        assert (found.kind, found.local_rank, found.signal, found.site) == ("signal", 0, "SIGKILL", None)
    # Its own mistake beside the children is its own.
    found = death(parent.replace("spawn.py", "other.py") + "ValueError: no such worker")
    assert (found.text, str(found.site)) == ("ValueError: no such worker", "/home/user/train.py:35 main")


def test_a_boxed_traceback_is_read() -> None:
    found = death(
        """
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /home/user/train.py:40 in <module>                                           │
│                                                                              │
│ ❱ 40 main()                                                                  │
│ /home/user/train.py:22 in step                                               │
╰──────────────────────────────────────────────────────────────────────────────╯
ValueError: bad
"""
    )
    assert (found.text, str(found.site)) == ("ValueError: bad", SITE)


def test_the_last_words_of_nccl_are_part_of_the_exception() -> None:
    found = death(
        ranked(
            0,
            """\
Traceback (most recent call last):
  File "/home/user/train.py", line 22, in step
    dist.all_reduce(g)
  File "/usr/local/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 3068, in all_reduce
    work = group.allreduce([tensor], opts)
torch.distributed.DistBackendError: NCCL error in: /pytorch/x.cpp:3135, invalid usage, NCCL version 2.28.9
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Bootstrap : no socket interface found
""",
        )
    )
    assert found.text.endswith("NCCL version 2.28.9; last error: Bootstrap : no socket interface found")
    assert (found.is_collective_error, str(found.site)) == (True, SITE)


@cases(
    ("words", "is_collective"),
    [
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error", True),
        ("torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.", True),
        ("torch.distributed.DistNetworkError: Connection reset by peer", True),
        ("accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation.", True),
        ("RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1", True),
        ("RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 1000 ms", True),
        ("jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: x", True),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", False),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", False),
        ("AssertionError", False),
        ("KeyboardInterrupt", False),
    ],
)  # fmt: skip
def test_errors_of_the_library_are_told_from_the_users(words: str, is_collective: bool) -> None:
    found = death(ranked(0, PLAIN.replace("ValueError: bad sample in shard 17", words)))
    assert (found.text, found.is_collective_error) == (words, is_collective)


@cases(
    "text",
    [
        "Exception ignored in: <function A.__del__ at 0x7f>\n" + PLAIN,
        "Exception in thread Thread-1 (run):\n" + PLAIN,
        "--- Logging error ---\n" + PLAIN,
        PLAIN.replace("<module>", "retry") + "".join(f"step {n} loss 2.{n}\n" for n in range(9)),
        "2026-11-20 12:00:18,000 - loader - WARNING - once more\n" + PLAIN.replace("<module>", "retry"),
        PLAIN.replace("<module>", "retry") + "retrying\nok\n",
        "2026-11-20 12:00:18,000 - t - ERROR - no upload\n" + PLAIN.replace("<module>", "retry") + "Bye\n",
        "Error in atexit._run_exitfuncs:\n" + PLAIN,
        "2026-11-20 12:00:18,000 - loader - WARNING - Traceback (most recent call last):\n" + PLAIN.partition("\n")[2],
    ],
)
def test_what_was_caught_is_no_death(text: str) -> None:
    assert not read(text).deaths


OPEN = PLAIN.replace("<module>", "test_loop")
"""From below `mp.spawn`, Ray or a line that was cut: no entrance of a program above it."""


@cases("behind", ["", "srun: error: n1: task 0: Exited with exit code 1\n", "wandb: Synced\n" * 9,
                                    "/x/resource_tracker.py:254: UserWarning: leaked\n  warnings.warn('x')\n",
                                    "n1:7:7 [0] NCCL INFO comm 0x7 destroyed\n" * 20])  # fmt: skip
def test_a_traceback_that_stands_last_ended_its_process(behind: str) -> None:
    found = next(d for d in read("step 1 loss 2.0\n" * 9 + OPEN + behind).deaths if d.text)
    assert (found.kind, found.text) == ("exception", "ValueError: bad sample in shard 17")


def test_a_traceback_behind_which_the_training_goes_on_ended_nothing(tmp_path: Path) -> None:
    steps = "".join(f"iteration {n} loss 2.0\n" for n in range(5, 9))
    assert deaths_in_file(tmp_path, OPEN + steps) == []
    assert deaths_in_file(tmp_path, PLAIN + steps) == []  # print_exc() in main() looks like Python's own end
    assert [d.text for d in deaths_in_file(tmp_path, steps + PLAIN)] == ["ValueError: bad sample in shard 17"]
    ended = "E1120 11:51:27.492000 12 torch/distributed/elastic/api.py:9] failed (exitcode: 1) local_rank: 1 (pid: 8)"
    [found] = deaths_in_file(tmp_path, PLAIN + steps + ended + " of binary: /usr/bin/python3\n")
    assert (found.text, found.local_rank, found.exit_code) == ("ValueError: bad sample in shard 17", 1, 1)


def test_steps_that_exceptions_speak_of_are_no_progress(tmp_path: Path) -> None:
    raised = [PLAIN.replace("bad sample in shard 17", f"no loss at step {n}") for n in (500, 501, 502)]
    assert len(deaths_in_file(tmp_path, "".join(raised))) == 3


def test_who_is_killed_long_after_an_exception_did_not_end_by_it(tmp_path: Path) -> None:
    steps = "".join(f"iteration {n} loss 2.0\n" for n in range(5, 9))
    deaths = deaths_in_file(tmp_path, PLAIN + steps + "./run.sh: line 3: 77 Killed    python train.py\n")
    assert [(d.kind, d.signal) for d in deaths] == [("signal", "SIGKILL")]


def deaths_in_file(folder: Path, text: str) -> list[Death]:
    """What the scanner and the readers find in a file."""
    file = folder / "out.log"
    file.write_text(text)
    return [
        death
        for reading in read_found(Found(path=str(file), label="out.log", size_bytes=len(text)))
        for death in reading.deaths
    ]


def test_two_tracebacks_of_nobody_known_are_not_given_to_one_exit_code() -> None:
    ended = "failed (exitcode: 1) local_rank: 1 (pid: 8) of binary: /usr/bin/python3\n"
    deaths = read(PLAIN + PLAIN.replace("ValueError", "KeyError") + ended).deaths
    assert {(d.kind, d.local_rank) for d in deaths} == {("exception", None), ("exit", 1)}


def test_a_traceback_behind_names_of_nodes_is_read() -> None:
    lines = [
        *PLAIN.splitlines(),
        "[2026-11-20 12:00:18,000] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 7",
    ]
    found = death("".join(f"trainer-2: {line}\n" for line in lines))
    assert (found.node, found.text, str(found.site)) == ("trainer-2", "ValueError: bad sample in shard 17", SITE)


def test_a_launcher_that_raises_for_its_child_tells_how_the_child_ended() -> None:
    text = """
Traceback (most recent call last):
  File "/usr/lib/python3.7/site-packages/torch/distributed/launch.py", line 249, in main
    cmd=cmd)
subprocess.CalledProcessError: Command '['/usr/bin/python', 't.py', '--local_rank=7']' {how}
"""
    # Its command is that of the process which it started last, whichever failed: no local rank is read there.
    found = death(text.replace("{how}", "died with <Signals.SIGSEGV: 11>."))
    assert (found.kind, found.signal, found.local_rank, found.rank) == ("signal", "SIGSEGV", None, None)
    found = death(text.replace("{how}", "returned non-zero exit status 2."))
    assert (found.kind, found.exit_code, found.local_rank) == ("exit", 2, None)
    found = death(
        text.replace("torch/distributed/launch.py", "deepspeed/launcher/launch.py").replace(
            "{how}", "died with <Signals.SIGKILL: 9>."
        )
    )
    assert (found.signal, found.local_rank) == ("SIGKILL", 7)


def test_a_command_that_the_program_itself_ran_is_an_exception_of_the_program() -> None:
    found = death(
        PLAIN.replace(
            "ValueError: bad", "subprocess.CalledProcessError: Command 'git' returned non-zero exit status 1."
        )
    )
    assert (found.kind, str(found.site)) == ("exception", SITE)


def test_the_last_exception_of_a_launcher_counts_where_it_is_its_own() -> None:
    text = """
Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/deepspeed/launcher/runner.py", line 401, in main
    subprocess.check_call(
subprocess.CalledProcessError: Command 'ssh gpu-0011 hostname' returned non-zero exit status 255.

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/usr/bin/deepspeed", line 6, in <module>
    main()
  File "/usr/lib/python3/site-packages/deepspeed/launcher/runner.py", line 407, in main
    raise RuntimeError(
RuntimeError: Using hostfile at /h but host=gpu-0011 was not reachable via ssh.
"""
    found = death(text)
    assert (found.kind, found.rank) == ("exception", None)
    assert found.text.startswith("RuntimeError: Using hostfile")


def test_a_traceback_that_breaks_off_is_no_death() -> None:
    assert not read("\n".join(PLAIN.splitlines()[:-1])).deaths


def test_a_traceback_in_a_ranks_own_file_is_that_ranks() -> None:
    assert death(PLAIN, "logs/rank_3/stderr.log").rank == 3
    assert death(PLAIN, "run/attempt_0/2/stderr.log").local_rank == 2
    assert (
        death("vm:77:77 [0] NCCL INFO comm 0x7 rank 5 nranks 8 cudaDev 0 busId 1 - Init COMPLETE\n" + PLAIN).rank == 5
    )


def test_launchers_traceback_is_no_ranks_death() -> None:
    text = PLAIN.replace("/home/user/train.py", "/usr/lib/python3.12/site-packages/torch/distributed/run.py")
    assert not read(text.replace("ValueError: bad", "torch.distributed.elastic.x.ChildFailedError: ")).deaths
    found = death(
        text.replace("ValueError: bad", "torch.distributed.DistNetworkError: The client socket has timed out")
    )
    assert (found.rank, found.is_collective_error) == (None, True)


def test_the_call_of_the_library_is_the_one_that_the_program_made() -> None:
    frames = [
        ("/job/train.py", 9, "step"),
        ("/opt/venv/lib/python3.12/site-packages/torch/distributed/c10d_logger.py", 83, "wrapper"),
        ("/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 3300, "all_gather_object"),
        ("/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 3068, "all_gather"),
    ]
    assert Failure("RuntimeError", frames=frames).call == "all_gather_object"
    assert Failure("RuntimeError", frames=frames[:2]).call == ""


CHECKPOINT = """
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/user/train.py", line 40, in <module>
[rank0]:     main()
[rank0]:   File "/home/user/train.py", line 22, in step
[rank0]:     dcp.load(state, checkpoint_id=path)
[rank0]:   File "/usr/lib/python3.12/site-packages/torch/distributed/checkpoint/utils.py", line 192, in reduce_scatter
[rank0]:     raise result
[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([2, 3])
[rank0]: Traceback (most recent call last): (RANK 2)
[rank0]:   File "/usr/lib/python3.12/site-packages/torch/distributed/checkpoint/utils.py", line 164, in reduce_scatter
[rank0]:     local_data = map_fun()
[rank0]:                  ^^^^^^^^^
[rank0]: RuntimeError: Missing key in checkpoint state_dict: model.2.weight.
[rank0]: Traceback (most recent call last): (RANK 3)
[rank0]:   File "/usr/lib/python3.12/site-packages/torch/distributed/checkpoint/utils.py", line 164, in reduce_scatter
[rank0]:     local_data = map_fun()
[rank0]: RuntimeError: Missing key in checkpoint state_dict: model.3.weight.
"""
"""What torch.distributed.checkpoint raises on every rank when some failed."""


def test_a_checkpoint_that_failed_on_one_rank_is_that_ranks_failure_whoever_tells_it() -> None:
    missing = "RuntimeError: Missing key in checkpoint state_dict: model.2.weight."
    found = death(CHECKPOINT)
    assert (found.rank, found.text, str(found.site)) == (2, missing, SITE)
    found = death(CHECKPOINT.replace("[rank0]", "[rank3]"))
    assert (found.rank, found.text, str(found.site)) == (3, missing, SITE)
    found = death(CHECKPOINT + CHECKPOINT.replace("[rank0]", "[rank1]"))
    assert (found.rank, found.text) == (2, missing)
    found = death(
        CHECKPOINT.partition(
            '[rank0]:   File "/usr/lib/python3.12/site-packages/torch/distributed/checkpoint/utils.py", line 164'
        )[0]
    )
    assert (found.rank, str(found.site)) == (2, SITE)
    assert found.text.endswith("dict_keys([2, 3])")


HEADLESS = {
    "its frames and its last line": ("".join(PLAIN.splitlines(keepends=True)[1:]), None),
    "of a rank": ("".join(f"[rank8]: {line}\n" for line in PLAIN.splitlines()[3:]), 8),
    "behind a line of source": ("    main()\n" + "".join(PLAIN.splitlines(keepends=True)[3:]), None),
    "its last line alone": ("step 120 loss 2.31\nRuntimeError: The size of tensor a (512) must match\n", None),
    "its last line alone, of a rank": ("[rank3]: KeyError: 'layers.12'\n", 3),
}

NO_DEATH_WITHOUT_HEADER = {
    "frames that a program prints": '  File "/a/b.py", line 3, in f\n    g()\nstep 3 loss 1.0\nstep 4 loss 1.0\n',
    "a word behind frames": '  File "/a/b.py", line 3, in f\n    g()\nDone: 3\n',
    "a library's frames and a warning": '  File "/a/b.py", line 3, in f\nW1124 10:00:00.000 12 x.py:3] slow\n',
    "behind which steps follow": "ValueError: bad record, skipped\nstep 3 loss 1.0\nstep 4 loss 1.0\n",
    "logged": "2024-05-01 10:00:00,000 - ERROR - ValueError: bad record\n",
}


@cases("name", list(HEADLESS))
def test_a_traceback_whose_head_is_cut_off_is_read(name: str) -> None:
    text, rank = HEADLESS[name]
    found = death(text)
    assert (found.kind, found.rank) == ("exception", rank)
    assert found.text.startswith(("ValueError: bad sample", "RuntimeError: The size", "KeyError: 'layers"))


@cases("name", list(NO_DEATH_WITHOUT_HEADER))
def test_what_only_looks_like_the_rest_of_a_traceback_is_no_death(name: str) -> None:
    assert read(NO_DEATH_WITHOUT_HEADER[name], "out.log").deaths == []


AGREED = """\
Traceback (most recent call last):
  File "/opt/env/lib/python3.12/site-packages/allready/runtime/direct.py", line 70, in sum_directly
    work.wait(limit)
RuntimeError: Operation timed out!

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/user/train.py", line 22, in step
    allready.safe_all_reduce(x)
  File "/src/allready/runtime/calls.py", line 86, in safe_all_reduce
    return _in_place(called, key, tensor)
allready.runtime.failures.CollectiveFailed: RTM005: rank 0 (gpu01, pid 7) is alive and did not enter all_reduce #61
"""


def test_what_the_ranks_agreed_upon_counts_and_not_what_failed_inside_of_the_call() -> None:
    for text in (AGREED, AGREED.replace("/opt/env/lib/python3.12/site-packages/", "/src/")):
        found = death(text)
        assert found.text.startswith("allready.runtime.failures.CollectiveFailed: RTM005"), found
        assert (found.is_collective_error, str(found.site)) == (True, SITE)


def test_an_exception_of_the_program_stays_what_began_it() -> None:
    """The other ranks got its failure, and this one the library's words of it."""
    cut = AGREED.index("Traceback", 10)
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    found = death(PLAIN + between + AGREED[cut:])
    assert (found.text, str(found.site)) == ("ValueError: bad sample in shard 17", SITE)
    assert not found.is_collective_error


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("MisconfigurationException: \n   You requested GPUs: [0, 1]\n   But your machine only has: [0]\n",
         "MisconfigurationException: You requested GPUs: [0, 1] But your machine only has: [0]"),
        ("RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for a.b: torch.Size([2])\n",
         "RuntimeError: Error(s) in loading state_dict for Net: size mismatch for a.b: torch.Size([2])"),
        ("ValueError: bad sample\nin shard 7\n", "ValueError: bad sample"),
    ],
)  # fmt: skip
def test_where_an_exceptions_words_are_below_its_line_they_are_said(text: str, said: str) -> None:
    found = read_text(f'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    main()\n{text}')
    assert found is not None
    assert found.text == said


ESCAPED = PLAIN.strip().replace('"', '\\"').replace("\n", "\\n")
FLAT = " ".join(line.strip() for line in PLAIN.splitlines() if "^^" not in line)
CHAINED_FLAT = (
    'Traceback (most recent call last): File "/home/user/data.py", line 8, in read return self.index[i] KeyError: 17 '
    "During handling of the above exception, another exception occurred: "
    f"{FLAT}"
)


@cases(
    ("line", "text", "site"),
    [
        (f'message: "The replica w0 ended. \\n{ESCAPED}\\n"', "ValueError: bad sample in shard 17", SITE),
        (f"The replica master 0 ended. Termination reason: Error. {FLAT}", "ValueError: bad sample in shard 17", SITE),
        (FLAT.replace("): File", "): [...] File"), "ValueError: bad sample in shard 17", SITE),
        (f"{FLAT} To find out more about why your job exited see x", "ValueError: bad sample in shard 17", SITE),
        (CHAINED_FLAT, "KeyError: 17", "/home/user/data.py:8 read"),
    ],
)  # fmt: skip
def test_a_traceback_in_one_line_is_read_as_lines(line: str, text: str, site: str) -> None:
    found = death(line)
    assert (found.kind, found.text, str(found.site)) == ("exception", text, site)


def test_words_below_the_name_of_an_exception_that_stands_alone_are_its_words() -> None:
    for below in (
        "    The closure hasn't been executed.\n",
        "Mixed precision is not supported here.\nUse another one.\n",
    ):
        found = death(f"lightning.fabric.utilities.exceptions.MisconfigurationException: \n{below}")
        assert below.strip().split("\n")[0] in found.text
    assert not read("ValueError:\nstep 1\nOSError: no\n  here\nstep 2\n").deaths


def test_what_led_to_an_exception_counts_where_only_its_last_line_is_left() -> None:
    cut = "KeyError: 'backbone.weight'\n\nDuring handling of the above exception, another exception occurred:\n\n"
    assert death(cut + PLAIN).text == "KeyError: 'backbone.weight'"
    assert death("step 9\n\nDuring handling of the above exception, another exception occurred:\n\n" + PLAIN).text == (
        "ValueError: bad sample in shard 17"
    )


LAUNCHED = """\
Traceback (most recent call last):
  File "/opt/cli.py", line 9, in <module>
    subprocess.run(cmd, check=True)
subprocess.CalledProcessError: Command '['accelerate', 'launch']' returned non-zero exit status 1.
"""


def test_a_failed_command_s_own_exception_is_the_cause() -> None:
    assert death(PLAIN + LAUNCHED).text == "ValueError: bad sample in shard 17"
    assert "CalledProcessError" in death(LAUNCHED).text
