"""What bus bandwidth this hardware should give, where it is published: the table `busbw.toml`."""

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from allready.model import BenchPoint

GOOD, POOR = 0.9, 0.75
"""Share of the published value from which a machine is as it should be, and below which it is not."""
ADVERTISED = 0.8
"""The line that many draw, of what the vendor promises for the link; healthy machines are on both sides of it."""


class Value(Struct, frozen=True, kw_only=True):
    """One published value."""

    gpu: str
    link: str = ""  # name of the link that it is a value of, whatever the GPUs
    gpus: int  # 0: any number
    nodes: int  # 0: two and more
    algorithm: str
    size_bytes: int
    busbw: float
    kind: str
    source: str


class LinkSpec(Struct, frozen=True, kw_only=True):
    """What a vendor promises for a link, in one direction: between the GPUs of a node, or of a node to the others."""

    gpu: str = ""
    name: str
    advertised: float
    is_nvlink: bool = False  # of NVIDIA, any generation


class PcieSpec(Struct, frozen=True, kw_only=True):
    """What PCIe carries in one direction with 16 lanes."""

    generation: int
    advertised: float


class Publication(Struct, frozen=True, kw_only=True):
    """Where a value was published."""

    id: str
    text: str


class ExpectationTable(Struct, frozen=True, kw_only=True):
    """The file."""

    source: tuple[Publication, ...]
    link: tuple[LinkSpec, ...]
    pcie: tuple[PcieSpec, ...]
    value: tuple[Value, ...]


class Grade(StrEnum):
    """How a measurement compares with a published value."""

    GOOD = "good"
    FAIR = "fair"
    POOR = "poor"


class Hardware(Struct, frozen=True, kw_only=True):
    """What was measured on.

    algorithm: nvls, ring; "" where nothing says so, and NCCL takes what it can.  link: between the GPUs of one node, or
    between several nodes, where the nodes' own facts tell.
    """

    gpu: str
    gpus: int
    nodes: int
    algorithm: str = ""
    link: LinkSpec | None = None


class Expectation(Struct, frozen=True, kw_only=True):
    """A measured point beside a published value."""

    point: BenchPoint
    value: Value
    source: str
    link: LinkSpec | None

    @property
    def share(self) -> float:
        """Of the published value."""
        return self.point.busbw_gb_per_s / self.value.busbw

    @property
    def grade(self) -> Grade:
        """Good, fair or poor."""
        return Grade.GOOD if self.share >= GOOD else Grade.FAIR if self.share >= POOR else Grade.POOR


@functools.cache
def load_table() -> ExpectationTable:
    """The published values."""
    text = Path(__file__).with_name("busbw.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), ExpectationTable)


def algorithm_of(variables: Mapping[str, str]) -> str:
    """Which algorithm these variables leave to NCCL: ring without NVLS; "" where they say nothing."""
    if variables.get("NCCL_NVLS_ENABLE", "") == "0":
        return "ring"
    names = variables.get("NCCL_ALGO", "").lower()
    if not names:
        return ""
    return "ring" if "ring" in names and "nvls" not in names and not names.startswith("^") else ""


def compare(points: Iterable[BenchPoint], hardware: Hardware) -> Expectation | None:
    """The largest all_reduce for which a value is published, beside the lowest of those; None where there is none.

    Sources differ with NCCL's version: a machine that reaches the lowest of them is healthy.  What NCCL logged as the
    algorithm of a point counts more than what the variables leave open.
    """
    table = load_table()
    for point in sorted(points, key=lambda p: -p.size_bytes):
        if point.operation != "all_reduce":
            continue
        known = _LOGGED.get(point.algorithm, point.algorithm.lower()) or hardware.algorithm
        values = [v for v in table.value if _is_of(v, replace(hardware, algorithm=known))]
        # A larger message is not slower: the value of the next smaller size holds as well.
        sizes = [v.size_bytes for v in values if v.size_bytes <= point.size_bytes]
        if not sizes or (point.size_bytes > max(sizes) and max(sizes) < min(_PLATEAU, point.size_bytes)):
            continue
        value = min((v for v in values if v.size_bytes == max(sizes)), key=lambda v: v.busbw)
        source = next((s.text for s in table.source if s.id == value.source), value.source)
        return Expectation(point=point, value=value, source=source, link=link_of(hardware))
    return None


def promised(link: LinkSpec, busbw_gb_per_s: float) -> tuple[float, bool]:
    """The share of what the vendor promises, and whether it is above the line that many draw at 80 % of it."""
    share = busbw_gb_per_s / link.advertised
    return share, share >= ADVERTISED


_LOGGED = {"COLLNET_DIRECT": "sharp", "COLLNET_CHAIN": "sharp"}
"""NCCL's words for algorithms -> those of the table, where they are not the same in small letters."""
_PLATEAU = 2**30
"""From here on the bandwidth hardly grows; below it only equal sizes are compared."""


def link_of(hardware: Hardware) -> LinkSpec | None:
    """The link that limits a large all_reduce: between the GPUs of one node, or between nodes."""
    return hardware.link or (link_of_gpu(hardware.gpu) if hardware.nodes == 1 else None)


def link_of_gpu(name: str) -> LinkSpec | None:
    """The link between GPUs of this name, where they are sold with one among all GPUs of a node."""
    return next((link for link in load_table().link if re.search(link.gpu, name)), None)


def pcie_spec(generation: int, lanes: int, *, has_p2p: bool) -> LinkSpec | None:
    """PCIe as a link between GPUs; None for a generation that the table does not have."""
    of = next((pcie for pcie in load_table().pcie if pcie.generation == generation), None)
    if of is None or not 0 < lanes <= _LANES:
        return None
    name = f"PCIe {generation} x{lanes}" + (" (P2P)" if has_p2p else "")
    return LinkSpec(name=name, advertised=of.advertised * lanes / _LANES)


def network_spec(rates_gbit_per_s: Sequence[float], kind: str) -> LinkSpec | None:
    """The NICs of one node together, of which all have the same rate, or None."""
    if len(set(rates_gbit_per_s)) != 1:
        return None
    count, rate = len(rates_gbit_per_s), rates_gbit_per_s[0]
    return LinkSpec(name=f"{count} x {rate:g} Gbit/s {kind}", advertised=count * rate / 8)


def _is_of(value: Value, hardware: Hardware) -> bool:
    link = link_of(hardware)
    if not re.search(value.gpu, hardware.gpu) or (value.link and (link is None or value.link != link.name)):
        return False
    if value.gpus not in {0, hardware.gpus} or (
        hardware.nodes < 2 if value.nodes == 0 else value.nodes != hardware.nodes
    ):
        return False
    # NCCL takes NVLS where it can, from 5 GPUs on; IB SHARP only where it is set up.
    wanted = hardware.algorithm or ("nvls" if hardware.nodes == 1 and hardware.gpus > _RING_UP_TO else "ring")
    return value.algorithm in {"", wanted}


_LANES = 16
_RING_UP_TO = 4
