"""Which directions lose packets at random, and not in the full queue before a slow link."""

import math
from collections.abc import Iterable

from allready.judging.analysis import Analysis
from allready.rules.net._losses import MIN_SEGMENTS, Sent, lossy_links
from allready.rules.net._pace import slow_transfers
from allready.rules.net._paths import NodePair

QUEUE_RATIO, NUM_SPREADS = 1.5, 3.0
"""So many times larger, and so far beyond chance, is the share of TCP's segments that a full queue drops."""


def losing_links(case: Analysis) -> dict[NodePair, Sent]:
    """Directions that lose packets at random, which no healthy network does."""
    found, slow = case.of(lossy_links), case.of(slow_transfers)
    doubtful = {link: s for link, s in found.items() if not s.is_proven}
    behind = {link: s for link, s in doubtful.items() if slow is not None and slow.is_clear and link in slow.links}
    return {k: s for k, s in found.items() if k not in behind} if _are_of_a_queue(behind.values()) else dict(found)


def _are_of_a_queue(behind: Iterable[Sent]) -> bool:
    """Whether a full queue explains the lost datagrams of all directions through one slow link.

    Chance takes the same share of both kinds; the queue takes more of the TCP segments, which keep it full.
    """
    ways = [s for s in behind if s.num_segments >= MIN_SEGMENTS]
    segments, packets = sum(s.num_segments for s in ways), sum(s.num_packets for s in ways)
    if not segments or not packets:
        return False
    resent, lost = sum(s.num_resent for s in ways) / segments, sum(s.num_lost for s in ways) / packets
    spread = math.sqrt(lost * (1 - lost) * (1 / segments + 1 / packets))
    return resent >= QUEUE_RATIO * lost and resent - lost > NUM_SPREADS * spread
