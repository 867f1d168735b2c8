"""One spelling of each collective, however a program writes it, and what of its tensors all members have alike."""

from collections.abc import Mapping

_NAMES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "broadcast": "broadcast",
    "bcast": "broadcast", "reduce": "reduce", "alltoall": "all_to_all", "alltoallv": "all_to_all_v", "gather": "gather",
    "scatter": "scatter", "send": "send", "recv": "recv", "sendrecv": "send_recv",
}  # fmt: skip

INPUTS, OUTPUTS, NOTHING = "inputs", "outputs", ""

ALIKE: Mapping[str, str] = {
    "all_reduce": INPUTS,
    "broadcast": INPUTS,
    "reduce": INPUTS,
    "reduce_scatter": INPUTS,  # outputs differ in its uneven form, and so do the parts of the input, not their sum
    "all_gather": OUTPUTS,  # the same the other way round
}
"""Operation -> whose elements, all tensors together, every member must have alike.  Of others (all_to_all with splits,
scatter and gather, where the root has more) only the name is compared.
"""

ANY = 0
"""Code of a call of which too little is recorded to compare it: it differs from none."""

SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Operations that no rank leaves before all have entered."""


def known_operation(name: str) -> str | None:
    """`all_reduce` for `AllReduce`, `ALLREDUCE` or `all_reduce`; None for a name that is not known."""
    return _NAMES.get(name.lower().replace("_", ""))
