"""What torch has worked out for an old mesh answers for no new one, in no thread."""

import concurrent.futures
import socket
from typing import Any

import pytest

from allready.runtime import meshes

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
