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
