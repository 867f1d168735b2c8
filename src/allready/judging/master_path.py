"""Which nodes' connections to node 0 suffer from packets that are lost on the way, though both ends live."""

from collections.abc import Iterable

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.model import MasterContactFacts

MIN_RESENT = 3
MIN_SHARE = 0.2
"""Of so many lost packets TCP's time-outs grow until an end gives up; a healthy network repeats none of these few."""


class LosingPath(Struct, frozen=True, kw_only=True):
    """What shows that a path loses packets; counts are of the connections that broke, 0 where nothing is known.

    `num_broken`: connections between the two that were made and broke, 0 where the one that is asked stands.  `calls`:
    the node's datagrams came afterwards.
    """

    num_sent: int = 0
    num_resent: int = 0
    num_broken: int = 0
    calls: bool = False


def losing_master_paths(case: Analysis) -> dict[int, LosingPath]:
    """Node -> what is known of its path to node 0; only nodes whose connection broke by that, or whose part in the
    stage about paths failed or did not come."""
    found: dict[int, LosingPath] = {}
    roll = case.roll
    if roll is not None:
        calling = {c.node_rank for c in roll.callers if c.kind == "datagram" and c.tcp == "silent"}
        for node, loss in zip(roll.lost, roll.losses, strict=False):
            # Who had joined over this port, lives, and gets no connection any more is kept off by no filter.
            if _is_lossy(loss.num_sent, loss.num_resent) or (node in calling and not loss.is_silent):
                found[node] = LosingPath(
                    num_sent=loss.num_sent, num_resent=loss.num_resent, num_broken=1, calls=node in calling
                )
        found |= {
            n: LosingPath(num_sent=roll.resent[n][0], num_resent=roll.resent[n][1])
            for n in _failed_nodes(case) & lossy_to_master(case)
        }
    for node, contact in case.facts(MasterContactFacts).items():
        loss_ = contact.loss
        if contact.outcome == "silent" and contact.num_broken:
            found[node] = LosingPath(num_broken=contact.num_broken, calls=bool(contact.heard_by_datagram))
        elif contact.outcome == "lost" and loss_ is not None and _is_lossy(loss_.num_sent, loss_.num_resent):
            found[node] = LosingPath(num_sent=loss_.num_sent, num_resent=loss_.num_resent, num_broken=1)
    return found


def lossy_to_master(case: Analysis) -> frozenset[int]:
    """Nodes whose connection to node 0 stands and had to repeat much."""
    return frozenset(n for n, (sent, resent) in _resent(case) if _is_lossy(sent, resent))


def _resent(case: Analysis) -> Iterable[tuple[int, tuple[int, int]]]:
    return case.roll.resent.items() if case.roll is not None else ()


def _failed_nodes(case: Analysis) -> frozenset[int]:
    paths = case.reach.paths if case.reach is not None else ()
    return frozenset(n for p in paths if p.outcome in _FAILED for n in (p.src, p.dst))


_FAILED = {"filtered", "stuck", "not_run", "error"}


def _is_lossy(num_sent: int, num_resent: int) -> bool:
    return num_resent >= max(MIN_RESENT, MIN_SHARE * num_sent)
