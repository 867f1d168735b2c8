"""Packets that are lost for their size: black holes, and payloads that stick for another reason."""

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.model import DatagramProbe, Interface, NetFacts, PathProbe
from allready.rules.net._interfaces import holder
from allready.rules.net._paths import Hop, back, judge_paths

_TCP_OVERHEAD_BYTES = 52  # IPv4, TCP and its time stamps
_USUAL_MTU_BYTES = 9000


class Hole(Struct, frozen=True):
    """One direction of TCP in which full packets get lost."""

    path: PathProbe
    lost_bytes: int | None  # smallest datagram that was lost, in this direction
    passed_bytes: int  # size of an IP packet that did pass


def passed_bytes(path: PathProbe) -> int:
    """The largest payload that came back."""
    return path.passed_bytes[-1] if path.passed_bytes else 0


def stuck_path(paths: list[PathProbe]) -> PathProbe | None:
    """The probe whose payloads stick first; None when none does, or another connection carried as much."""
    stuck = [p for p in paths if p.outcome == "stuck" and p.stuck_bytes is not None]
    if not stuck:
        return None
    path = min(stuck, key=passed_bytes)
    carried = max((passed_bytes(p) for p in paths if p.outcome == "ok"), default=0)
    return None if carried >= (path.stuck_bytes or 0) else path


def find_hole(case: Analysis, hop: Hop) -> Hole | None:
    """The black hole of one direction of TCP; None when payloads return, or when their size is not what stops them.

    If packets of full size are known to have passed, the path is merely slow or lossy.
    """
    judged = case.of(judge_paths)
    path = stuck_path(judged.data[hop])
    if path is None or not path.passed_bytes:
        return None
    there, again = (lost_sizes(judged.datagrams.get(h)) for h in (hop, back(hop)))
    lost = min((size for size, _ in (there, again) if size is not None), default=None)
    mtu = min((i.mtu_bytes for i in ends(case, path) if i is not None), default=_USUAL_MTU_BYTES)
    passed = min(path.passed_bytes[-1] + _TCP_OVERHEAD_BYTES, mtu)
    if passed >= mtu and (lost is None or lost <= passed):
        return None
    if lost is None:
        return Hole(path, None, passed)
    return Hole(path, lost, min(size for lost_at, size in (there, again) if lost_at is not None))


def ends(case: Analysis, path: PathProbe) -> tuple[Interface | None, Interface | None]:
    """The interfaces at both ends of a probe, where they are known: the sender's and the receiver's."""
    net = case.facts(NetFacts)
    return holder(net.get(path.src), path.src_address), holder(net.get(path.dst), path.address)


def lost_sizes(probe: DatagramProbe | None) -> tuple[int | None, int]:
    """Smallest datagram size from which on none arrived (None: no such size), and the largest that did (0: none).

    One lost datagram among larger ones that arrived is plain loss, not a matter of size.
    """
    if probe is None or not probe.received_bytes:
        return None, 0
    largest = max(probe.received_bytes)
    lost = [s for s in probe.sent_bytes if s > largest and s not in probe.too_big_bytes]
    return min(lost, default=None), largest
