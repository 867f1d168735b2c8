"""What the real tables make of lines, where one line alone does not say it."""

import pytest

from allready.evidence.log import read_lines
from allready.model import Event, Role

OOM = "CUDA out of memory. Tried to allocate 28.00 MiB (GPU 1; 10.92 GiB total capacity; 10.13 GiB already allocated)"


def events(*lines: str) -> list[Event]:
    return read_lines(lines, "out.log", mtime_s=1.0).events


def test_processes_that_jax_names_one_below_the_other_are_numbers() -> None:
    tasks = [f"/job:jax_worker/replica:0/task:{n}" for n in (3, 1, 2)]
    said = "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:"
    (found,) = [e for e in events(said, *tasks) if e.signature == "jax.barrier_timeout"]
    assert (found.values["ranks"], found.values["tasks"]) == ("3, 1, 2", "3, 1, 2")


@pytest.mark.parametrize(
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


TIMED_OUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=216, OpType=ALLREDUCE, NumelIn=32, NumelOut=32, "
    "Timeout(ms)=600000) ran for 600045 milliseconds before timing out."
)


@pytest.mark.parametrize("front", ["", "2026-11-20 12:54 ", " 2026-11-20 12:54 ", "11/20/2026 12:54:22 PM ", "12:54 "])
def test_a_time_out_belongs_to_the_rank_in_front_whatever_stamp_stands_there(front: str) -> None:
    of_nccl = f"{front}vm:180:915 [7] NCCL INFO misc/socket.cc:47 -> 3"
    torch = [f"{front}[rank{r}]:[E1120 12:54:22.864 ProcessGroupNCCL.cpp:616] [Rank 1] {TIMED_OUT}" for r in (13, 15)]
    found = [e for e in events(*torch, of_nccl) if e.signature == "torch.watchdog_timeout"]
    assert [(e.origin.rank, e.origin.pid) for e in found] == [(13, None), (15, None)]


def test_an_old_time_out_behind_a_progress_bar_belongs_to_the_rank_that_it_names() -> None:
    bar = "Epoch 0:   6%|##        | 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6]"
    (found,) = events(f"{bar}[E ProcessGroupNCCL.cpp:458] [Rank 5] {TIMED_OUT}")
    assert (found.origin.rank, found.values["seq"]) == (5, "216")
