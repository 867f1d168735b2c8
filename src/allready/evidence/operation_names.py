"""One spelling of each collective, however a program writes it."""

_NAMES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "broadcast": "broadcast",
    "bcast": "broadcast", "reduce": "reduce", "alltoall": "all_to_all", "alltoallv": "all_to_all_v", "gather": "gather",
    "scatter": "scatter", "send": "send", "recv": "recv", "sendrecv": "send_recv",
}  # fmt: skip


def known_operation(name: str) -> str | None:
    """`all_reduce` for `AllReduce`, `ALLREDUCE` or `all_reduce`; None for a name that is not known."""
    return _NAMES.get(name.lower().replace("_", ""))
