"""What an operation can need, what a time-out was, when a silence began: plain arithmetic over logged numbers."""

from collections.abc import Mapping

from allready.judging.stated import said
from allready.model import Phrase

SLOW_LINK_GB_PER_S = 1.0
"""Ten-gigabit Ethernet: what even the slowest link between training nodes carries."""

NVLINK_GB_PER_S = 300.0
"""NVLink between the GPUs of one node (A100; later ones are faster), one direction."""

_DEFAULTS: Mapping[int, Mapping[str, Phrase]] = {
    60: {
        "store": said("the default of torchrun's c10d rendezvous for connecting to its store"),
        "nccl": said("the time that NCCL tries to connect (34 attempts)"),
    },
    100: {"jax": said("the default of JAX for missed heartbeats")},
    300: {
        "jax": said("the default of JAX for initialization and for shutdown"),
        "store": said("the default of torch's TCPStore"),
    },
    480: {"heartbeat": said("the default of torch's heartbeat monitor (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC)")},
    600: {
        "nccl": said("the default of torch for NCCL collectives"),
        "rendezvous": said("the default of torchrun's dynamic rendezvous for joining"),
    },
    900: {"rendezvous": said("the default of torchrun's static rendezvous")},
    1800: {
        "gloo": said("the default of torch for Gloo, and for NCCL before 2.2"),
        "store": said("the default of torch for starting Gloo groups and env:// stores"),
    },
}
_TOLERANCE = 0.002
"""A watchdog that polls says 600053 ms when it means 600 s; so far may a number be above its default."""


def default_timeout_of(seconds: float, what: str | None = None) -> Phrase | None:
    """What has `seconds` as its default time-out; None when nothing known has.

    Args:
        seconds: as logged; a little more than the default counts, as a watchdog looks only now and then.
        what: prefer this meaning: "nccl", "gloo", "store", "rendezvous", "jax", "heartbeat".
    """
    for default, meanings in _DEFAULTS.items():
        if default <= seconds <= default * (1 + _TOLERANCE) + 0.2:
            return meanings.get(what or "") or next(iter(meanings.values()))
    return None


def size_range(num_elements: int) -> tuple[int, int]:
    """Smallest and largest size in bytes that so many elements can have: of 2 or 4 bytes, what training moves."""
    return num_elements * 2, num_elements * 4


def transfer_time_s(size_bytes: float, gb_per_s: float) -> float:
    """How long `size_bytes` take over a link of `gb_per_s` (10^9 bytes a second).

    Raises:
        ValueError: a link without bandwidth.
    """
    if gb_per_s <= 0:
        raise ValueError(f"{gb_per_s} GB/s")
    return size_bytes / (gb_per_s * 1e9)


def onset_s(line_time_s: float, waited_s: float) -> float:
    """When a silence began that was noticed at `line_time_s` after `waited_s`."""
    return line_time_s - waited_s


def is_never_transfer(size_bytes: float, waited_s: float, *, slowest_gb_per_s: float = SLOW_LINK_GB_PER_S) -> bool:
    """Whether moving `size_bytes` cannot explain the wait, even ten times as slow as the slowest usual link."""
    return transfer_time_s(size_bytes, slowest_gb_per_s) * 10 < waited_s
