"""Which of torch's makings of a group can be left."""

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from allready.runtime.making import Leavable
from tests.cases import cases


class BackendConfig:
    """As torch's."""

    def __init__(self, backend: str) -> None:
        if backend == "nonsense":
            raise ValueError("no such backend")
        parts = [part.rpartition(":")[::2] for part in backend.split(",")]
        usual = {"gloo": ["cpu", "cuda"], "nccl": ["cuda"]}
        self._parts = {device: name for given, name in parts for device in ([given] if given else usual[name])}

    def get_device_backend_map(self) -> dict[str, str]:
        return self._parts


class Cuda:
    """As torch's: every thread has its own GPU, the first one unless it chooses."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def is_available(self) -> bool:
        return True

    def set_device(self, device: int) -> None:
        self._of_thread.device = device

    def current_device(self) -> int:
        return getattr(self._of_thread, "device", 0)


def with_helper(helper: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """torch's module of process groups, which has this function."""
    distributed = ModuleType("torch.distributed")
    found = SimpleNamespace(
        BackendConfig=BackendConfig, **({"_new_process_group_helper": helper} if helper is not None else {})
    )
    distributed.distributed_c10d = found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed, cuda=Cuda()))
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    return found


def other(size: int, rank: int) -> tuple[int, int]:
    return size, rank


@cases("helper", [None, other])
def test_a_torch_that_makes_groups_otherwise_stays_as_it_is(helper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torchs = with_helper(helper, monkeypatch)
    leavable = Leavable()
    leavable.begin(lambda: False)
    assert getattr(torchs, "_new_process_group_helper", None) is helper
    leavable.end()
    assert getattr(torchs, "_new_process_group_helper", None) is helper


def made(group_rank: int | None, global_ranks_in_group: list[int], backend: str) -> tuple[str, list[int]]:
    return backend, global_ranks_in_group


def test_torchs_own_function_is_there_again_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    torchs = with_helper(made, monkeypatch)
    leavable = Leavable()
    leavable.begin(lambda: False)
    assert torchs._new_process_group_helper is not made
    assert torchs._new_process_group_helper(0, [0, 1], "gloo") == ("gloo", [0, 1])
    assert torchs._new_process_group_helper(0, [], "nccl") == ("nccl", [])
    leavable.end()
    assert torchs._new_process_group_helper is made


@cases(
    "backend, is_apart",
    [("gloo", True), ("cpu:gloo", True), ("cpu:gloo,cuda:nccl", True), ("nccl", False), ("cuda:nccl", False),
     ("nonsense", False)],
)  # fmt: skip
def test_every_group_with_a_part_by_gloo_is_made_in_a_thread_that_can_be_left_on_the_gpu_of_the_caller(
    backend: str, is_apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[tuple[bool, int]] = []

    def makes(group_rank: int, global_ranks_in_group: list[int], backend: str) -> str:
        torch: Any = sys.modules["torch"]
        places.append((threading.current_thread() is not caller, torch.cuda.current_device()))
        return backend

    caller = threading.current_thread()
    torchs = with_helper(makes, monkeypatch)
    leavable = Leavable()
    leavable.begin(lambda: False)
    cuda: Any = sys.modules["torch"].cuda
    cuda.set_device(3)
    assert torchs._new_process_group_helper(0, [0, 1], backend) == backend
    assert places == [(is_apart, 3 if not is_apart or "cuda" in backend or backend == "gloo" else 0)]
