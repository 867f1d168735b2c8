"""What the real tables make of lines, where one line alone does not say it."""

import io
from collections.abc import Sequence

import pytest

from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret, read_lines
from allready.model import Event, Role
from allready.signatures import load
from tests.cases import cases

DNN = "FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details."
STOP = "Stop_waiting response is expected"
OVERCOME = {s.id for s in load().values() if s.code in {"CUD011", "STO019"}}
OOM = "CUDA out of memory. Tried to allocate 28.00 MiB (GPU 1; 10.92 GiB total capacity; 10.13 GiB already allocated)"


def events(*lines: str) -> Sequence[Event]:
    return read_lines(lines, "out.log", mtime_s=1.0).events


def test_a_dead_actor_is_named_by_the_lines_below_it_without_a_traceback_too() -> None:
    said = "(TrainController pid=9) The actor died unexpectedly before finishing this task."
    below = ("class_name: RayTrainWorker", "actor_id: c221", "pid: 79326", "ip: 10.0.0.7")
    (found,) = events(said, *(f"(TrainController pid=9) \t{line}" for line in below))
    assert (found.values["actor"], found.values["pid"], found.values["ip"]) == ("RayTrainWorker", "79326", "10.0.0.7")


def test_a_step_that_slurm_gave_up_is_told_by_the_node_that_did_not_answer() -> None:
    launch = "srun: error: Task launch for StepId=96.0 failed on node "
    found = events(f"{launch}n2: No such process", f"{launch}n1: Socket timed out on send/recv operation")
    assert {e.values["node"]: e.role for e in found} == {"n2": Role.CASCADE, "n1": Role.ROOT}


def test_processes_that_jax_names_one_below_the_other_are_numbers() -> None:
    tasks = [f"/job:jax_worker/replica:0/task:{n}" for n in (3, 1, 2)]
    said = "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:"
    (found,) = [e for e in events(said, *tasks) if e.signature == "jax.barrier_timeout"]
    assert (found.values["ranks"], found.values["tasks"]) == ("3, 1, 2", "3, 1, 2")


@cases(
    ("front", "role"),
    [
        ("2026-11-06 22:55:35 | WARNING | trainer | OOM: Ran out of memory with exception: ", Role.HARMLESS),
        ("WARNING:trainer: skipping this batch: ", Role.HARMLESS),
        ("RuntimeError: ", Role.ROOT),
        ("2026-11-06 22:55:35 | ERROR | trainer | ", Role.ROOT),
    ],
)
def test_memory_that_a_loop_was_warned_of_and_went_on_without_is_no_fault(front: str, role: Role) -> None:
    (found,) = events(front + OOM)
    assert (found.signature, found.role) == ("cuda.out_of_memory", role)


@cases(
    ("lines", "words"),
    [
        (
            (
                "[gpu02:21183] *** Process received signal ***\n[gpu02:21183] Signal: Bus error (7)\n"
                "[gpu02:21183] Signal code: Non-existant physical address (2)\n"
                "[gpu02:21183] Failing at address: 0x7f2b00a01000\n[gpu02:21183] [ 0] /lib/libc.so.6(+0x42520)[0x7f]\n"
            ),
            "Bus error, non-existant physical address at 0x7f2b00a01000",
        ),
        (
            "[hpc-1:2292:0:2296] Caught signal 11 (Segmentation fault: invalid permissions)\n==== backtrace ====\n",
            "Segmentation fault: invalid permissions",
        ),
        (
            (
                "F0321 12:34:56.789012 12345 shards.cc:123] Check failed: fd >= 0 (-1 vs. 0)\n"
                "*** Check failure stack trace: ***\n    @  0x7f8d  google::LogMessage::Fail()\n"
                "*** SIGABRT (@0x1f) received by PID 12345 (TID 0x7f8d) from PID 12345; stack trace: ***\n"
            ),
            "shards.cc:123: Check failed: fd >= 0 (-1 vs. 0)",
        ),
        (
            (
                "F0000 00:00:1718200000.123456   12345 shards.cc:123] Check failed: fd >= 0 (-1 vs. 0)\n"
                "*** SIGABRT received at time=1718200000 on cpu 3 ***\n"
            ),
            "shards.cc:123: Check failed: fd >= 0 (-1 vs. 0)",
        ),
    ],
)
def test_the_last_words_of_a_process_get_through_the_scanner(lines: str, words: str) -> None:
    ordinary = "".join(f"loading shard {number}\n" for number in range(50))
    [death] = interpret(scan(io.BytesIO((ordinary + lines).encode())), "out.log", mtime_s=1.0).deaths
    assert death.last_words == words


@pytest.mark.parametrize("prefix", ["", "2024-04-25T14:44:04.498000301Z ", "[pod/trainer-0/main] "])
def test_ray_names_the_actor_in_the_lines_below(prefix: str) -> None:
    lines = [
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "\tclass_name: RayTrainWorker",
        "\tactor_id: 647f783bf08ca69c00e2c66b01000000",
        "\tpid: 55131",
        "\tnamespace: 240551e9-cf1e-41f7-a58b-1c6d10852a8b",
        "\tip: 172.17.0.2",
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
    ]
    found = events(*(prefix + line for line in lines))[0]
    assert {n: found.values[n] for n in ("actor", "pid", "ip")} == {
        "actor": "RayTrainWorker",
        "pid": "55131",
        "ip": "172.17.0.2",
    }


def test_what_stands_elsewhere_is_no_word_on_the_actor() -> None:
    found = events("ray.exceptions.ActorDiedError: The actor died unexpectedly.", "loading", "\tpid: 55131")[0]
    assert "pid" not in found.values


@cases("words", [DNN, STOP])
@cases(
    ("front", "behind", "is_fault"),
    [
        ("jaxlib.xla_extension.XlaRuntimeError: ", "", True),
        ("W0301 10:00:00.123456 77 gpu_compiler.cc:12] retrying: ", "", False),
        ("attempt 1 failed, trying again: ", "", False),
        ("/opt/retry/train.py: RuntimeError: ", "", True),
        ("RuntimeError: ", "step 1 loss 2.3\nstep 2 loss 2.2\n", False),
        ("RuntimeError: ", "cleaning up\nbye\n", True),
    ],
)
def test_what_a_later_try_overcame_is_no_fault(words: str, front: str, behind: str, is_fault: bool) -> None:
    text = f"step 0 loss 2.4\n{front}{words}\n{behind}"
    found = interpret(scan(io.BytesIO(text.encode())), "out.log", mtime_s=1.0).events
    [role] = [e.role for e in found if e.signature in OVERCOME]
    assert (role is not Role.HARMLESS) == is_fault


def test_a_traceback_that_ended_its_rank_is_a_fault_whatever_the_others_print() -> None:
    text = (
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/job/train.py", line 9, in <module>\n'
        f"[rank1]: RuntimeError: {STOP}\n"
        "step 1 loss 2.3\nstep 2 loss 2.2\n"
    )
    found = interpret(scan(io.BytesIO(text.encode())), "out.log", mtime_s=1.0).events
    assert [e.role for e in found if e.signature == "store.answer_unexpected"] == [Role.RECORD]


TIMED_OUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=216, OpType=ALLREDUCE, NumelIn=32, NumelOut=32, "
    "Timeout(ms)=600000) ran for 600045 milliseconds before timing out."
)


@cases("front", ["", "2026-11-20 12:54 ", " 2026-11-20 12:54 ", "11/20/2026 12:54:22 PM ", "12:54 "])
def test_a_time_out_belongs_to_the_rank_in_front_whatever_stamp_stands_there(front: str) -> None:
    of_nccl = f"{front}vm:180:915 [7] NCCL INFO misc/socket.cc:47 -> 3"
    torch = [f"{front}[rank{r}]:[E1120 12:54:22.864 ProcessGroupNCCL.cpp:616] [Rank 1] {TIMED_OUT}" for r in (13, 15)]
    found = [e for e in events(*torch, of_nccl) if e.signature == "torch.watchdog_timeout"]
    assert [(e.origin.rank, e.origin.pid) for e in found] == [(13, None), (15, None)]


def test_an_old_time_out_behind_a_progress_bar_belongs_to_the_rank_that_it_names() -> None:
    bar = "Epoch 0:   6%|##        | 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6]"
    (found,) = events(f"{bar}[E ProcessGroupNCCL.cpp:458] [Rank 5] {TIMED_OUT}")
    assert (found.origin.rank, found.values["seq"]) == (5, "216")
