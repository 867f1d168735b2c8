"""Evidence of broken paths, in the words of the socket table."""

from allready.judging.link_ends import Stuck
from allready.judging.link_paths import Broken
from allready.model import Evidence, Live

MAX = 8


def told(live: Live, found: Broken) -> tuple[Evidence, ...]:
    """Stuck connections, then who is silent."""
    rows = [_row(live, s) for s in sorted(found.stuck, key=lambda s: -s.row.backoff)[:MAX]]
    return (*rows, *heard(live))


def heard(live: Live) -> tuple[Evidence, ...]:
    """For how long each node that is not node 0 has been silent, the most silent first."""
    silent = sorted(((s, n) for n, s in live.heard_s.items() if n in live.statuses), reverse=True)
    lost = {n: why for n, why in live.lost.items() if n in live.statuses}
    return tuple(
        Evidence(
            source="side channel",
            text=f"node {n}: last heard {s:.1f} s ago" + (f", {lost[n]}" if n in lost else ""),
            node_rank=n,
        )
        for s, n in silent[:4]
    )


def segment_bytes(stuck: tuple[Stuck, ...]) -> int | str:
    """Size of the smallest segments that are stuck; `?` when nothing tells it."""
    sizes = [s.row.send_queue_bytes // s.row.unacked for s in stuck if s.row.unacked and s.row.send_queue_bytes]
    return min(sizes, default="?")


def _row(live: Live, end: Stuck) -> Evidence:
    row = end.row
    arrived = {
        "lost": "the other end did not get it",
        "answer lost": "the other end has it: the acknowledgement is lost",
    }
    text = (
        f"node {end.src} -> node {end.dst}: {row.send_queue_bytes} B in {row.unacked} segments unacknowledged after "
        f"{row.backoff} time-outs"
    )
    if row.last_received_s is not None:
        text += f", last word from there {row.last_received_s:.1f} s ago"
    if end.way in arrived:
        text += f"; {arrived[end.way]}"
    status = live.statuses.get(end.src)
    rank = f", rank {row.rank}" if row.rank is not None else ""
    return Evidence(
        source=f"socket {row.local}:{row.local_port} -> {row.remote}:{row.remote_port}{rank}",
        text=text,
        node_rank=end.src if status is not None else None,
    )
