"""Which of torch's backends for NCCL a job gets, without a GPU."""

import os
import subprocess
import sys

import pytest

from allready.errors import UsageError
from allready.runtime import nccl

pytestmark = [pytest.mark.torch, pytest.mark.newest]

MADE = """
import torch, torch.distributed as dist
from allready.runtime import nccl
torch.cuda.is_available = lambda: True
nccl.prepare()
try:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
except ValueError as error:
    print(error)
"""


def test_operations_can_be_ended_also_where_torch_has_a_backend_in_which_they_cannot() -> None:
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_nccl_available():
        pytest.skip("a torch without NCCL")
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_DIST_USE_NCCL2"}
    done = subprocess.run(
        [sys.executable, "-c", MADE], capture_output=True, text=True, timeout=120, check=True, env=environment
    )
    assert done.stdout.startswith("ProcessGroupNCCL is only supported with GPUs")  # the other one says "nccl2 ..."


def test_who_asks_for_that_backend_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", type("Group", (), {"abort": None}), raising=False)
    for name in (*nccl.REQUIRED, "TORCH_DIST_USE_NCCL2"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nccl, "_DUMP_WAITS", ())
    monkeypatch.setenv("TORCH_DIST_USE_NCCL2", "1")
    with pytest.raises(UsageError, match="TORCH_DIST_USE_NCCL2"):
        nccl.prepare()
    monkeypatch.setenv("TORCH_DIST_USE_NCCL2", "0")
    nccl.prepare()
    for name in nccl.REQUIRED:
        monkeypatch.delenv(name)


def test_a_group_of_another_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    nccls = type("Group", (), {})
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", nccls, raising=False)

    class Group:
        def __init__(self, backend: object) -> None:
            self._backend = backend

        def _get_backend(self, device: object) -> object:
            return self._backend

    nccl.check(Group(nccls()))
    with pytest.raises(UsageError, match="cannot be ended"):
        nccl.check(Group(object()))
