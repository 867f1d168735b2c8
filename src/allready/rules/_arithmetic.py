"""What an operation can need, what a time-out was, when a silence began: plain arithmetic over logged numbers."""

from collections.abc import Mapping

SLOW_LINK_GB_PER_S = 1.0
"""Ten-gigabit Ethernet: what even the slowest link between training nodes carries."""

NVLINK_GB_PER_S = 300.0
"""NVLink between the GPUs of one node (A100; later ones are faster), one direction."""

WIDTHS: Mapping[str, int] = {
    "float64": 8, "int64": 8, "uint64": 8, "double": 8, "long": 8, "complex64": 8, "complex128": 16,
    "float32": 4, "int32": 4, "uint32": 4, "float": 4, "int": 4,
    "float16": 2, "bfloat16": 2, "int16": 2, "half": 2, "short": 2,
    "int8": 1, "uint8": 1, "bool": 1, "char": 1, "byte": 1,
    "float8_e4m3": 1, "float8_e5m2": 1, "float8_e4m3fn": 1,
}  # fmt: skip
"""Bytes of one element by canonical name of its type."""

_DEFAULTS: Mapping[int, Mapping[str, str]] = {
    60: {
        "store": "the default of torchrun's c10d rendezvous for connecting to its store",
        "nccl": "the time that NCCL tries to connect (34 attempts)",
    },
    100: {"jax": "the default of JAX for missed heartbeats"},
    300: {
        "jax": "the default of JAX for initialization and for shutdown",
        "store": "the default of torch's TCPStore",
    },
    480: {"heartbeat": "the default of torch's heartbeat monitor (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC)"},
    600: {
        "nccl": "the default of torch for NCCL collectives",
        "rendezvous": "the default of torchrun's dynamic rendezvous for joining",
    },
    900: {"rendezvous": "the default of torchrun's static rendezvous"},
    1800: {
        "gloo": "the default of torch for Gloo, and for NCCL before 2.2",
        "store": "the default of torch for starting Gloo groups and env:// stores",
    },
}
_TOLERANCE = 0.002
"""A watchdog that polls says 600053 ms when it means 600 s; so far may a number be above its default."""


def default_timeout_of(seconds: float, what: str | None = None) -> str | None:
    """What has `seconds` as its default time-out, in words; None when nothing known has.

    Args:
        seconds: as logged; a little more than the default counts, as a watchdog looks only now and then.
        what: prefer this meaning: "nccl", "gloo", "store", "rendezvous", "jax", "heartbeat".
    """
    for default, meanings in _DEFAULTS.items():
        if default <= seconds <= default * (1 + _TOLERANCE) + 0.2:
            return meanings.get(what or "") or next(iter(meanings.values()))
    return None


def default_timeout_name(seconds: float, what: str | None = None) -> str | None:
    """The same as a short name for texts in other languages: `nccl_600`."""
    meaning = default_timeout_of(seconds, what)
    for default, meanings in _DEFAULTS.items():
        for name, text in meanings.items():
            if text == meaning:
                return f"{name}_{default}"
    return None


def is_default_timeout(seconds: float) -> bool:
    """Whether nobody set it: the number is one of the libraries' defaults."""
    return default_timeout_of(seconds) is not None


def size_range(num_elements: int, dtype: str | None = None) -> tuple[int, int]:
    """Smallest and largest size in bytes that so many elements can have; equal when the type is known.

    An unknown type has 2 or 4 bytes: what training moves.
    """
    width = WIDTHS.get(dtype or "")
    return (num_elements * width, num_elements * width) if width else (num_elements * 2, num_elements * 4)


def transfer_time_s(size_bytes: float, gb_per_s: float) -> float:
    """How long `size_bytes` take over a link of `gb_per_s` (10^9 bytes a second).

    Raises:
        ValueError: a link without bandwidth.
    """
    if gb_per_s <= 0:
        raise ValueError(f"{gb_per_s} GB/s")
    return size_bytes / (gb_per_s * 1e9)


def ring_all_reduce_time_s(size_bytes: float, ranks: int, gb_per_s: float) -> float:
    """Time of a ring all-reduce whose slowest link carries `gb_per_s`: each link carries 2 (n - 1) / n of the size.

    Raises:
        ValueError: fewer than one rank, or a link without bandwidth.
    """
    if ranks < 1:
        raise ValueError(f"{ranks} ranks")
    return transfer_time_s(size_bytes * 2 * (ranks - 1) / ranks, gb_per_s)


def collective_bytes(name: str, size_bytes: float, ranks: int) -> float:
    """Bytes that the busiest link carries in a collective whose largest buffer on a rank has `size_bytes`.

    Args:
        name: canonical: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, send, recv.
        size_bytes: of the full buffer (for all_gather the output, for reduce_scatter the input).
        ranks: members of the group.
    """
    if ranks < 2:
        return 0.0
    share = (ranks - 1) / ranks
    factors = {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share, "all_to_all": share}
    return size_bytes * factors.get(name, 1.0)


def needed_gb_per_s(size_bytes: float, seconds: float) -> float:
    """The bandwidth below which `size_bytes` do not arrive within `seconds`."""
    return size_bytes / seconds / 1e9 if seconds > 0 else float("inf")


def onset_s(line_time_s: float, waited_s: float) -> float:
    """When a silence began that was noticed at `line_time_s` after `waited_s`."""
    return line_time_s - waited_s


def is_never_transfer(size_bytes: float, waited_s: float, *, slowest_gb_per_s: float = SLOW_LINK_GB_PER_S) -> bool:
    """Whether moving `size_bytes` cannot explain the wait, even ten times as slow as the slowest usual link."""
    return transfer_time_s(size_bytes, slowest_gb_per_s) * 10 < waited_s
