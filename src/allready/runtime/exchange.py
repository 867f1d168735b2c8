"""What every rank says, on every rank."""

from typing import Any

import msgspec

from allready.runtime.calls import safe_all_gather
from allready.runtime.session import current


def small_device() -> str:
    """Where the default group takes small tensors of ours: on the CPU, or on its GPU where it has nothing else."""
    return current().group.small_device()


def gather_values(own: Any, kind: type, world_size: int) -> list[Any]:
    """Gather one small value of every rank, in the order of ranks.  Collective; success is final on all ranks.

    Raises:
        CollectiveFailed: on every surviving rank.
    """
    import torch

    device = small_device()
    encoded = msgspec.msgpack.encode(own)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world_size)]
    safe_all_gather(sizes, torch.tensor([len(encoded)], device=device))
    longest = max(int(size.item()) for size in sizes)
    padded = torch.frombuffer(bytearray(encoded.ljust(longest, b"\0")), dtype=torch.uint8).to(device)
    found = [torch.empty(longest, dtype=torch.uint8, device=device) for _ in range(world_size)]
    safe_all_gather(found, padded, confirm=True)
    return [
        msgspec.msgpack.decode(bytes(one[: int(size.item())].tolist()), type=kind)
        for one, size in zip(found, sizes, strict=True)
    ]
