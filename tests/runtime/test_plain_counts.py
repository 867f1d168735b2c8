"""What a process can say of plain collectives: torch's counts, and whether a thread is inside of one."""

import gc
import sys
import threading
import types
from collections.abc import Iterator

import pytest

from allready.model import MAKINGS
from allready.runtime.messages import BegunHere, Plain
from allready.runtime.plain import BegunCounts, _stacks, is_inside, stack_of
from tests.clock import Deadline


@pytest.fixture
def group() -> Iterator[str]:
    """torch's name of a default group of this process alone."""
    dist = pytest.importorskip("torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield str(dist.group.WORLD.group_name)
    finally:
        dist.destroy_process_group()


@pytest.mark.torch
@pytest.mark.newest
def test_operations_of_each_group_are_counted_from_when_the_default_one_was_formed(group: str) -> None:
    import torch
    import torch.distributed as dist

    begun = BegunCounts()
    dist.all_reduce(torch.ones(2))
    begun.reset()
    assert begun.sample(10.0).begun == (
        BegunHere(group=group, ranks=(0,), count=0),
        BegunHere(group=MAKINGS, ranks=(), count=0),
    )
    other = dist.new_group([0])
    dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(2), async_op=True).wait()
    dist.broadcast(torch.ones(2), 0, group=other)
    assert begun.sample(11.0) == Plain(
        begun=(
            BegunHere(group=group, ranks=(0,), count=2),
            BegunHere(group=str(other.group_name), ranks=(0,), count=1),
            BegunHere(group=MAKINGS, ranks=(), count=1),
        )
    )
    assert begun.sample(14.5).still_s == 3.5
    dist.barrier()
    assert begun.sample(15.0).still_s == 0.0


@pytest.mark.torch
def test_a_torch_that_does_not_say_a_groups_ranks_and_a_group_that_is_gone(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed import distributed_c10d

    def is_gone(group: object) -> list[int]:
        raise KeyError(group)

    monkeypatch.setattr(distributed_c10d, "get_process_group_ranks", is_gone)
    assert [here.group for here in BegunCounts().sample(1.0).begun] == [MAKINGS]
    monkeypatch.delattr(distributed_c10d, "get_process_group_ranks")
    here, _ = BegunCounts().sample(1.0).begun
    assert (here.group, here.ranks) == (group, ())


def test_without_torch_nothing_is_counted() -> None:
    assert BegunCounts().sample(1.0).begun == ()


def blocked_in(module: str) -> tuple[threading.Thread, threading.Event]:
    """A thread that stands in a function of a module of that name."""
    made, event, is_there = types.ModuleType(module), threading.Event(), threading.Event()
    lock = threading.Lock()
    lock.acquire()
    made.__dict__.update(lock=lock, is_there=is_there)
    exec("def call():\n    is_there.set()\n    lock.acquire()", made.__dict__)  # blocks in C, as torch does
    thread = threading.Thread(target=made.__dict__["call"], daemon=True)
    thread.start()
    assert is_there.wait(20.0)

    def release() -> None:
        event.wait()
        lock.release()

    threading.Thread(target=release, daemon=True).start()
    return thread, event


def test_a_thread_that_stands_in_torchs_collectives_is_inside_and_one_in_the_script_is_not() -> None:
    for module, expected in (("torch.distributed.distributed_c10d", True), ("train", False)):
        thread, event = blocked_in(module)
        deadline = Deadline(20.0)
        while is_inside() is not expected and not deadline.passed():
            pass  # it has not come to its lock yet
        assert is_inside() is expected
        event.set()
        thread.join(20.0)
        assert not is_inside()


def test_who_was_inside_when_looked_at_last_counts_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its operation may have failed just before the others asked."""
    begun, seen = BegunCounts(), iter([True, False, False])
    monkeypatch.setattr("allready.runtime.plain.is_inside", lambda: next(seen))
    assert [begun.sample(t).is_inside for t in (1.0, 2.0, 3.0)] == [True, True, False]


def test_no_search_for_cycles_begins_while_frames_of_other_threads_are_read() -> None:
    """Python 3.11: a finalizer would let those threads run, and their frames would be gone."""
    seen: list[bool] = []

    def note(phase: str, _: dict[str, int]) -> None:
        names = {frame.f_code.co_name for frame in stack_of(sys._getframe())}
        seen.append(phase == "start" and {"_stacks", "stack_of"} <= names)

    def wait(depth: int) -> None:
        if depth:
            wait(depth - 1)
        else:
            over.wait(60)

    over = threading.Event()
    thread = threading.Thread(target=wait, args=(50,))
    thread.start()
    before = gc.get_threshold()
    gc.callbacks.append(note)
    try:
        gc.set_threshold(1, 1, 1)
        found = max(map(len, _stacks()))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
        over.set()
        thread.join(20)
    assert found > 50
    assert gc.isenabled()
    assert seen
    assert not any(seen)
