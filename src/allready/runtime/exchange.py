"""What every rank says, on every rank."""

from typing import Any

import msgspec

from allready.runtime.calls import safe_all_gather


def tell_all(own: Any, kind: type, world_size: int) -> list[Any]:
    """Gather one small value of every rank, in the order of ranks.  Collective; success is final on all ranks.

    Raises:
        CollectiveFailed: on every surviving rank.
    """
    import torch

    encoded = msgspec.msgpack.encode(own)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world_size)]
    safe_all_gather(sizes, torch.tensor([len(encoded)]))
    longest = max(int(size.item()) for size in sizes)
    padded = torch.frombuffer(bytearray(encoded.ljust(longest, b"\0")), dtype=torch.uint8)
    found = [torch.empty(longest, dtype=torch.uint8) for _ in range(world_size)]
    safe_all_gather(found, padded, confirm=True)
    return [
        msgspec.msgpack.decode(bytes(one[: int(size.item())].tolist()), type=kind)
        for one, size in zip(found, sizes, strict=True)
    ]
