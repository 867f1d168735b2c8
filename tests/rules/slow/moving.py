"""A made-up job that moves: paces of four ranks, and what their connections carried within the last seconds."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from allready.judging.engine import RuleOutcome
from allready.model import Fleet, Lag, NodeStatus, RunEvidence, SocketRow
from allready.model.live import GroupMark
from tests.fleets import check
from tests.rules.link.wires import NOW, Pair, job, neighbours, row, status

SECONDS = 6.0
LOOKS = 4
RING_BYTES = 20_000_000
"""Data goes from each rank to the one before it; the other way go notices."""


def paces(shares: Mapping[int, float], waits: Mapping[int, int] | None = None, **changes: Any) -> Lag:
    """`shares`: of the time that the others wait for a rank."""
    known: dict[str, Any] = {
        "group": "0",
        "source": "flight recorder",
        "num_operations": 60,
        "median_period_s": 0.1,
        "noise_s": 0.001,
        "median_late_s": {r: 0.1 * s for r, s in shares.items()},
        "last_share": dict(shares),
        "waited_share": dict(shares),
        "num_waits": waits or {r: round(60 * min(1.0, 3 * s)) for r, s in shares.items()},
    }
    return Lag(**(known | changes))


EVEN = paces({0: 0.02, 1: 0.03, 2: 0.02, 3: 0.03})


def late(rank: int, share: float = 0.4, num_ranks: int = 4) -> Lag:
    """One rank is waited for, in nearly every operation."""
    return paces(
        {r: share if r == rank else 0.02 for r in range(num_ranks)},
        {r: 58 if r == rank else 1 for r in range(num_ranks)},
    )


def moving(
    lags: tuple[Lag, ...] = (EVEN,),
    *,
    num_nodes: int = 4,
    ranks: Mapping[int, Mapping[str, Any]] | None = None,
    pressure: Mapping[int, float] | None = None,
    flows: Mapping[Pair, Mapping[str, Any]] | None = None,
    inside: Mapping[int, float] | None = None,
    speed: tuple[float, float] = (10.0, 10.0),
    **changes: Any,
) -> Fleet:
    """`ranks`: what every word says of a rank; `flows`: (from, to) -> busy, sent_bytes, again, rtt_s, where unlike the
    others', in all of the time or from a share of it on (`since`); `inside`: rank -> at what share of the looks it is
    in an operation; `speed`: operations a second before and now.
    """
    words: dict[int, list[NodeStatus]] = {n: [] for n in range(num_nodes)}
    for i in range(-8, LOOKS):
        at = i / (LOOKS - 1)
        time_s = NOW - SECONDS * (1 - at)
        for n in words:
            turn = (i + 8) / (LOOKS + 8)
            is_inside = turn < (inside or {}).get(n, 0.6)
            mark = GroupMark(group="0", enqueued=9, completed=8, waiting_s=0.1 if is_inside else None, moved_s=time_s)
            done = speed[0] * (time_s - NOW + 22) if i < 0 else speed[0] * (22 - SECONDS) + speed[1] * SECONDS * at
            own = {"groups": (mark,), "period_s": 0.1, "num_operations": int(done), **(ranks or {}).get(n, {})}
            word = status(n, _sockets(n, num_nodes, at, flows or {}) if i >= 0 else (), time_s, **own)
            words[n].append(replace(word, cpu_pressure_share=(pressure or {}).get(n)))
    return job(
        num_nodes,
        lags=lags,
        statuses={n: kept[-1] for n, kept in words.items()},
        history={n: tuple(kept) for n, kept in words.items()},
        since_s=None,
        **changes,
    )


def _sockets(node: int, num_nodes: int, at: float, flows: Mapping[Pair, Mapping[str, Any]]) -> list[SocketRow]:
    found = []
    for pair in neighbours(num_nodes):
        if pair[0] != node:
            continue
        is_data = pair[1] == (node - 1) % num_nodes
        usual = {
            "busy": 0.1 if is_data else 0.05,
            "sent_bytes": RING_BYTES if is_data else 40_000,
            "again": 1,
            "rtt_s": 0.0002,
            "unsteady": 0.3,
            "full": 0.0,
        }
        needless = flows.get(pair, {}).get("needless")  # in all of the time
        flow = {"since": 0.0, **usual, **flows.get(pair, {})}
        since = flow["since"]
        before = min(at, since)
        total = {name: usual[name] * before + flow[name] * (at - before) for name in usual}
        now = flow if at > since or not since else usual
        found.append(
            row(
                *pair,
                busy_s=total["busy"] * SECONDS,
                bytes_acked=int(total["sent_bytes"]),
                total_retransmits=int(total["again"]),
                needless_retransmits=None if needless is None else int(needless * at),
                rtt_s=now["rtt_s"],
                rtt_variation_s=now["unsteady"] * now["rtt_s"],
                receiver_limited_s=total["full"] * SECONDS,
            )
        )
    return found


def without_paces(fleet: Fleet) -> Fleet:
    """The same job, of which no recorder tells."""
    assert fleet.run_evidence is not None
    return replace(fleet, run_evidence=RunEvidence(expected_ranks=fleet.run_evidence.expected_ranks))


def ask(code: str, *arguments: Any, **changes: Any) -> RuleOutcome:
    return check(code, moving(*arguments, **changes))


SLOW: dict[str, Any] = {"busy": 0.9, "sent_bytes": 6_000_000, "rtt_s": 0.02}
SLOW_NOTICE: dict[str, Any] = {"busy": 0.6, "sent_bytes": 20_000, "rtt_s": 0.012}
SLOW_LINK = {(2, 1): SLOW, (3, 2): SLOW, (1, 2): SLOW_NOTICE, (2, 3): SLOW_NOTICE}
"""The link of node 2."""
OTHERS: dict[str, Any] = {"sent_bytes": 6_000_000, "busy": 0.04}
SLOW_JOB = {(0, 3): OTHERS, (1, 0): OTHERS, **SLOW_LINK}
LOSSY = {(2, 1): {"again": 150}, (3, 2): {"again": 130}}
