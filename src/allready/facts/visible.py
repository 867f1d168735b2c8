"""CUDA_VISIBLE_DEVICES: which GPUs are left, in which order."""

import re
from collections.abc import Mapping, Sequence

from allready.model import Gpu


def visible_gpus(value: str | None, gpus: Sequence[Gpu], mig: Mapping[str, int] | None = None) -> tuple[int, ...]:
    """NVML indices that CUDA_VISIBLE_DEVICES leaves, in its order.

    CUDA's rules: the list ends at the first entry that is no GPU; a GPU named twice leaves none at all; an empty
    value or -1 hides all.  Numbers are taken in PCI order, which is NVML's; CUDA's own default order
    (FASTEST_FIRST) differs from it only where a machine has GPUs of different speed, and cannot be known without
    starting CUDA there.

    Args:
        value: the variable; None when it is not set.
        gpus: all of NVML's.
        mig: UUID of a MIG instance -> index of its GPU.
    """
    known = {g.index for g in gpus}
    if value is None:
        return tuple(g.index for g in gpus)
    found: list[int] = []
    entries: set[str] = set()
    for entry in value.split(","):
        index = _index(entry.strip(), gpus, mig or {})
        if index is None or index not in known:
            break
        is_mig = entry.strip().startswith("MIG-")
        if entry.strip() in entries or (index in found and not is_mig):
            return ()
        entries.add(entry.strip())
        if index not in found:
            found.append(index)
    return tuple(found)


def _index(entry: str, gpus: Sequence[Gpu], mig: Mapping[str, int]) -> int | None:
    if entry.startswith("MIG-GPU-"):  # MIG-GPU-UUID/GI/CI, before driver 470
        entry = entry.removeprefix("MIG-").partition("/")[0]
    elif entry.startswith("MIG-"):
        return _unique({index for uuid, index in mig.items() if uuid.lower().startswith(entry.lower())})
    if entry.startswith("GPU-"):
        return _unique({g.index for g in gpus if g.uuid.lower().startswith(entry.lower())})
    number = re.match(r"\+?(\d{1,4})", entry)  # CUDA reads the leading digits and ignores the rest
    return int(number[1]) if number else None


def _unique(found: set[int]) -> int | None:
    """A prefix of a UUID must fit one GPU only."""
    return found.pop() if len(found) == 1 else None
