"""Which of torch's makings of a group can be left."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from allready.runtime.making import Leavable
from tests.cases import cases


def with_helper(helper: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """torch's module of process groups, which has this function."""
    distributed = ModuleType("torch.distributed")
    found = SimpleNamespace(**({"_new_process_group_helper": helper} if helper is not None else {}))
    distributed.distributed_c10d = found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
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
