"""What torch has worked out for an old mesh answers for no new one, in no thread."""

import concurrent.futures
import gc
import socket
import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from allready.messaging.job_store import JobStore
from allready.runtime import meshes
from allready.runtime.group import WorldGroup

pytestmark = [pytest.mark.torch, pytest.mark.newest]


def test_a_new_mesh_of_the_same_ranks_is_another_one_in_every_thread() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    def doubled(mesh: Any) -> Any:
        """The mesh of a result."""
        tensor = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        return (tensor + tensor).device_mesh

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as other:  # as backward on a GPU has one
            old, same = init_device_mesh("cpu", (1,)), init_device_mesh("cpu", (1,))
            assert other.submit(doubled, old).result() is old
            assert other.submit(doubled, same).result() is old  # so there is something to be wrong
            meshes.retire()
            meshes.forget()
            new = init_device_mesh("cpu", (1,))
            assert other.submit(doubled, new).result() is new
            assert doubled(new) is new
            assert old == same  # as before, for what still holds them
    finally:
        dist.destroy_process_group()


def test_meshes_are_found_that_are_frozen_or_of_a_kind_of_their_own_and_none_that_refuses_stops_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Mesh:
        _thread_id: object = None

    class Own(Mesh):
        pass

    class Refusing(Mesh):
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "torch.distributed.device_mesh", SimpleNamespace(DeviceMesh=Mesh))
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor._api", SimpleNamespace())
    refusing, frozen, own = Refusing(), Mesh(), Own()
    for mesh in (refusing, frozen, own):
        mesh.__dict__["itself"] = mesh  # the collector leaves out what cannot be in a circle
    gc.freeze()
    try:
        meshes.retire()
    finally:
        gc.unfreeze()
    assert isinstance(frozen._thread_id, meshes._Gone)
    assert own._thread_id is frozen._thread_id
    assert refusing._thread_id is None
    meshes.retire()
    assert own._thread_id is frozen._thread_id  # of the epoch in which it was last in use


def test_the_default_groups_meshes_are_retired_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mesh of all ranks is made without a new group, so outside of `subgroups()`."""
    retired: list[bool] = []
    monkeypatch.setattr(meshes, "retire", lambda: retired.append(True))
    WorldGroup("gloo", JobStore(None, {}), rank=0, store_rank=None, timeout=timedelta(seconds=1)).leave()
    assert retired == [True]
