"""What `check` asks of the reachability stage."""

from msgspec import Struct

PAYLOADS_BYTES = (64, 1400, 9000, 2**20)
DATAGRAMS_BYTES = (92, 576, 1280, 1400, 1428, 1450, 1500, 4000, 9000)


class ReachRequest(Struct, frozen=True, kw_only=True):
    """What to try, and how long to wait for it.  Only node 0 has one; nodes receive what they need of it.

    Raises:
        ValueError: a value out of range; the message names it.
    """

    port_range: tuple[int, int] | None = None
    """Inclusive; of --port-range.  Up to `num_range_ports` of it are opened and tried on every node."""
    master: tuple[str, int] | None = None
    """Address and port that the nodes' own connections to node 0 use."""
    with_nccl: bool = True
    """Whether the job uses NCCL, so that its choice of addresses is tried too, not only Gloo's."""
    job_id: str = "none"
    """Seeds the sample of pairs when there are too many nodes for all."""
    payloads_bytes: tuple[int, ...] = PAYLOADS_BYTES
    """TCP payloads that must come back whole, growing."""
    datagrams_bytes: tuple[int, ...] = DATAGRAMS_BYTES
    """IP packet sizes that are sent once with fragmentation forbidden, growing."""
    num_data_ports: int = 2
    """Random high ports (chosen by the kernel, as NCCL's and Gloo's are) per address."""
    num_range_ports: int = 8
    max_addresses: int = 4
    """Addresses per node that are tried."""
    max_rounds: int = 64
    """More rounds than this: a sample of the pairs."""
    connect_s: float = 1.5
    """Silence for so long is "filtered".  One SYN retransmission (after 1 s) lies within."""
    echo_s: float = 1.0
    """Deadline for a payload, plus its size / `slowest_bytes_per_s`; once more for its way back."""
    slowest_bytes_per_s: float = 10e6
    endpoint_s: float = 5.0
    """How long node 0 waits for the nodes to open their listeners."""
    limit_s: float | None = None
    """Probing ends after so long, finished or not.  None: 8 s + 0.5 s per round."""

    def __post_init__(self) -> None:
        for name in ("payloads_bytes", "datagrams_bytes"):
            sizes = getattr(self, name)
            if not sizes or list(sizes) != sorted(set(sizes)) or sizes[0] < 1:
                raise ValueError(f"{name} must be growing positive sizes, not {sizes}")
        for name in ("num_data_ports", "max_addresses", "max_rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("connect_s", "echo_s", "slowest_bytes_per_s", "endpoint_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.limit_s is not None and self.limit_s <= 0:
            raise ValueError(f"limit_s must be positive, not {self.limit_s}")
        if self.port_range is not None and not 1 <= self.port_range[0] <= self.port_range[1] <= 65535:
            raise ValueError(f"port_range must be LOW-HIGH within 1-65535, not {self.port_range}")

    def limit_for(self, num_rounds: int) -> float:
        return self.limit_s if self.limit_s is not None else 8.0 + 0.5 * num_rounds
