"""The stage's messages between hub and nodes, and the few bytes that test connections carry.

Rows are arrays on the wire: a node of 64 reports some 60 partners in a few KB.
"""

import struct
from collections.abc import Mapping
from typing import Literal

import msgspec

from allready.model import Phrase

MAX_PAYLOAD_BYTES = 2**24
MAX_LISTENERS = 64

HELLO = struct.Struct("!32sI")
"""Opens a test connection: the stage's token, the caller's node rank."""
REPLY = struct.Struct("!4sI")
"""WELCOME with the listener's node rank, or RECEIVED with the size of what arrived."""
REQUEST = struct.Struct("!I")
"""Size of the payload that follows."""
DATAGRAM = struct.Struct("!32sII")
"""Head of a datagram: token, the sender's node rank, size of the IP packet."""
WELCOME = b"ARwe"
RECEIVED = b"ARok"

Outcome = Literal["ok", "refused", "filtered", "no_route", "stuck", "error", "not_run"]


class Probing(msgspec.Struct, frozen=True, kw_only=True):
    """What is tried between two nodes, and for how long."""

    payloads_bytes: tuple[int, ...] = (64, 1400, 9000, 2**20)
    """TCP payloads that must come back whole, growing."""
    datagrams_bytes: tuple[int, ...] = (92, 576, 1280, 1400, 1428, 1450, 1500, 4000, 9000)
    """IP packet sizes that are sent once with fragmentation forbidden, growing."""
    burst_bytes: tuple[int, ...] = (100, 104, 108)
    """IP packet sizes of the bursts that show how many packets are lost at random, where TCP shows a loss; the last one
    comes when all nodes have tried all paths, and nothing else of this stage fills a queue."""
    burst_packets: int = 100
    with_nccl: bool = True
    """Whether the job uses NCCL, so that its choice of addresses is tried too, not only Gloo's."""
    port_range: tuple[int, int] | None = None
    """Inclusive; of --port-range.  Up to `num_range_ports` of it are opened and tried on every node."""
    num_data_ports: int = 2
    """Random high ports (chosen by the kernel, as NCCL's and Gloo's are) per address."""
    num_range_ports: int = 8
    max_addresses: int = 4
    """Addresses per node that are tried."""
    connect_s: float = 1.5
    """Silence for so long is "filtered".  One SYN retransmission (after 1 s) lies within."""
    echo_s: float = 1.0
    """Deadline for a payload, plus its size / `slowest_bytes_per_s`; once more for its way back."""
    slowest_bytes_per_s: float = 10e6


class ReachRequest(Probing, frozen=True, kw_only=True):
    """What to try, and how long to wait for it.  Only node 0 has one; nodes receive its `Probing`."""

    master: tuple[str, int] | None = None
    """Address and port that the nodes' own connections to node 0 use."""
    job_id: str = "none"
    """Seeds the sample of pairs when there are too many nodes for all."""
    max_rounds: int = 64
    """More rounds than this: a sample of the pairs."""
    endpoint_s: float = 5.0
    """How long node 0 waits for the nodes to open their listeners."""
    limit_s: float | None = None
    """Probing ends after so long, finished or not.  None: 8 s + 0.5 s per round."""


class Opening(Probing, frozen=True, kw_only=True):
    """reach.open: what to open and how to probe."""

    token: str
    num_nodes: int
    avoid_port: int | None

    def __post_init__(self) -> None:
        """Bound what a garbled message could make this node do; msgspec reports it as its own error."""
        if len(self.token) != 32 or not self.token.isascii():
            raise ValueError("token must be 32 ASCII characters")
        if not all(0 < size <= MAX_PAYLOAD_BYTES for size in self.payloads_bytes) or not self.payloads_bytes:
            raise ValueError("payload size out of range")
        if not all(DATAGRAM.size + 48 <= size <= 65535 for size in (*self.datagrams_bytes, *self.burst_bytes)):
            raise ValueError("datagram size out of range")
        if self.max_addresses * (self.num_data_ports + self.num_range_ports) > MAX_LISTENERS:
            raise ValueError("too many listeners")
        if not (0 < self.connect_s <= 60 and 0 < self.echo_s <= 60 and self.slowest_bytes_per_s > 0):
            raise ValueError("deadline out of range")


class AddressOffer(msgspec.Struct, frozen=True, kw_only=True):
    """One address of a node and what is open there."""

    interface: str
    address: str
    data_ports: tuple[int, ...] = ()
    range_ports: tuple[int, ...] = ()
    datagram_port: int | None = None


class EndpointReport(msgspec.Struct, frozen=True, kw_only=True):
    """reach.endpoint: everything a node opened.  `why`: the reason if that is nothing."""

    offers: tuple[AddressOffer, ...] = ()
    busy_ports: tuple[int, ...] = ()  # of the port range: another process has them
    why: str = ""
    phrases: Mapping[str, tuple[Phrase, ...]] = {}  # what `why` says, as data


class ReachPlan(msgspec.Struct, frozen=True, kw_only=True):
    """reach.plan: one node's partners round by round, and what these opened."""

    partners: tuple[int | None, ...]
    offers: dict[int, tuple[AddressOffer, ...]]
    limit_s: float
    estimate_s: float
    num_pairs: int
    num_pairs_all: int


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One TCP path that was tried."""

    dst: int
    offer: int  # index into dst's offers
    port: int
    outcome: Outcome
    num_passed: int = 0  # of the payload sizes, from the smallest
    stuck_bytes: int | None = None
    rtt_s: float | None = None
    throughput_gb_per_s: float | None = None
    duration_s: float = 0.0
    src_address: str | None = None
    detail: str = ""
    num_sent: int = 0  # segments with data, towards dst
    num_retransmits: int = 0  # of them
    phrases: Mapping[str, tuple[Phrase, ...]] = {}  # what `detail` says, as data


class SentRow(msgspec.Struct, frozen=True, array_like=True):
    """Datagrams that were sent to one address; `too_big` never left: the kernel refused them."""

    dst: int
    offer: int
    sent: tuple[int, ...]
    too_big: tuple[int, ...] = ()
    bursts: tuple[int, ...] = ()  # packets sent of each burst


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """reach.result: everything a node tried."""

    rows: tuple[Row, ...] = ()
    sent: tuple[SentRow, ...] = ()


class SentCounts(msgspec.Struct, frozen=True, kw_only=True):
    """reach.counted: what a node sent in the last burst, to whom the others had gone."""

    sent: tuple[SentRow, ...] = ()


class ArrivedRow(msgspec.Struct, frozen=True, array_like=True):
    """Datagram sizes that arrived at one of this node's addresses from one node."""

    src: int
    offer: int  # index into the own offers
    sizes: tuple[int, ...]
    bursts: tuple[int, ...] = ()  # packets that arrived of each burst


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """reach.arrived: all datagrams that arrived."""

    rows: tuple[ArrivedRow, ...] = ()
