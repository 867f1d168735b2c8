"""How many TCP segments were lost on their way between two nodes, as the kernels of the senders counted."""

import math
from collections.abc import Sequence

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.master_path import lossy_to_master
from allready.model import DatagramProbe, PathProbe

MIN_LOST = 4
MIN_SHARE = 0.02
SAME_LOSS = 5
"""Bursts that all lose packets, and none so many times more than another, were not met by a passing queue."""
CHANCE = 0.001
"""How rarely bursts that meet one and the same random loss differ so much that they are taken for a queue's."""
WAITING_GB_PER_S = 0.0125
"""On a slower path single packets wait behind whatever else is under way; on a faster one no queue is full for long."""
EARLY_BURSTS = 2
BURSTS_GB_PER_S = 0.00025
"""What four bursts at a time need."""
SAME_RATE = 4.0
"""Two directions whose bandwidths differ by no more than this factor share what limits them."""
UNRELIABLE = 0.08
"""Two first packets in a row, or their answers, are lost in 2 of 100 connections or more."""
UNRELIABLE_TCP = 0.3
"""Where no node could count datagrams, the share of TCP's segments speaks, of which a full queue drops many as well: a
connection that fails may have met either."""
FEW_SEGMENTS = 20
MIN_SEGMENTS = 100
"""Fewer say nothing of a path that shows no loss."""


class Sent(Struct):
    """What is known of packets in one direction: TCP segments as the sender's kernel counts, and bursts of datagrams.

    TCP also loses packets in the full queue before a slow link; bursts are too small for that.  `address`: where the
    bursts went; of several networks the one that loses most.
    """

    num_segments: int = 0
    num_resent: int = 0
    num_packets: int = 0
    num_lost: int = 0
    is_random: bool = False
    num_bursts: int = 0
    address: str = ""
    best_gb_per_s: float | None = None

    @property
    def share(self) -> float:
        """Of the packets of the bursts, how many did not arrive."""
        return self.num_lost / self.num_packets if self.num_packets else 0.0

    @property
    def resent_share(self) -> float:
        """Of the TCP segments, how many were sent again."""
        return self.num_resent / self.num_segments if self.num_segments else 0.0

    @property
    def is_proven(self) -> bool:
        """Whether the last burst, which came alone, lost packets as well, on a link that is fast enough for several."""
        return self.is_random and self.num_bursts > EARLY_BURSTS and (self.best_gb_per_s or 0.0) >= BURSTS_GB_PER_S

    def add_path(self, path: PathProbe) -> None:
        """Count one connection."""
        self.num_segments += path.num_segments
        self.num_resent += path.num_retransmits
        self.best_gb_per_s = max(filter(None, (self.best_gb_per_s, path.throughput_gb_per_s)), default=None)

    def add_bursts(self, probe: DatagramProbe) -> None:
        """Count bursts.  One of which nothing arrived was filtered, or waited in a long queue, and shows nothing."""
        pairs = [pair for pair in zip(probe.bursts_sent, probe.bursts_received, strict=False) if min(pair) > 0]
        if not pairs:
            return
        lost, num_packets = [max(0, sent - came) for sent, came in pairs], sum(sent for sent, _ in pairs)
        if sum(lost) / num_packets < self.share:
            return  # another network of the two nodes loses more
        self.num_packets, self.num_lost, self.address = num_packets, sum(lost), probe.address
        self.num_bursts = len(pairs)
        # Another transfer may fill a queue for a while, but not during all bursts; the last one comes after all others.
        is_alike = SAME_LOSS * min(lost) >= max(lost) or _is_one_chance(lost, [sent for sent, _ in pairs])
        self.is_random = lost[-1] > 0 and sum(n > 0 for n in lost) >= EARLY_BURSTS and is_alike


def _is_one_chance(lost: Sequence[int], sent: Sequence[int]) -> bool:
    """Whether the bursts may all have met the same random loss, by the likelihood ratio of one rate against many.

    Twice its logarithm follows chi-square, with two degrees of freedom for three bursts: exp(-ratio) is its tail.
    """
    rate = sum(lost) / sum(sent)
    if not 0.0 < rate < 1.0:
        return True
    ratio = 0.0
    for num_lost, num in zip(lost, sent, strict=True):
        num_came = num - num_lost
        ratio += num_lost * math.log(num_lost / (num * rate)) if num_lost else 0.0
        ratio += num_came * math.log(num_came / (num * (1.0 - rate))) if num_came else 0.0
    return ratio <= -math.log(CHANCE)


def judge_sent(case: Analysis) -> dict[tuple[int, int], Sent]:
    """(from node, to node) -> what is known, all paths together."""
    found: dict[tuple[int, int], Sent] = {}
    if case.reach is None:
        return found
    lost = set(case.roll.lost) if case.roll is not None else set()
    for path in case.reach.paths:
        if path.kind == "data" and path.num_segments and not lost & {path.src, path.dst}:
            found.setdefault((path.src, path.dst), Sent()).add_path(path)
    for probe in case.reach.datagrams:
        if probe.bursts_sent and not lost & {probe.src, probe.dst}:
            found.setdefault((probe.src, probe.dst), Sent()).add_bursts(probe)
    return found


def lossy_links(case: Analysis) -> dict[tuple[int, int], Sent]:
    """Directions on which datagrams are lost, as on no healthy network."""
    sent = case.of(judge_sent)
    return {
        link: s
        for link, s in sent.items()
        if s.is_random and s.num_lost >= MIN_LOST and s.share >= MIN_SHARE and not _is_of_a_queue(link, s, sent)
    }


def _is_of_a_queue(link: tuple[int, int], own: Sent, sent: dict[tuple[int, int], Sent]) -> bool:
    """Whether a full queue explains the lost datagrams: all other directions through the same end are as slow, and one
    repeats half as many segments or more, and next to all of its datagrams arrived."""
    for end in (0, 1):
        others = [s for other, s in sent.items() if other != link and other[end] == link[end]]
        if _shares_a_queue(own, others):
            return True
    return False


def _shares_a_queue(own: Sent, others: list[Sent]) -> bool:
    rates = [s.best_gb_per_s for s in others if s.best_gb_per_s is not None]
    if own.best_gb_per_s is None or own.best_gb_per_s > WAITING_GB_PER_S or not rates:
        return False
    return max(rates) <= SAME_RATE * own.best_gb_per_s and any(
        other.num_packets >= MIN_SEGMENTS
        and other.share < min(MIN_SHARE, own.share / 5)
        and 2 * other.resent_share >= max(own.resent_share, MIN_SHARE)
        and other.best_gb_per_s is not None
        and own.best_gb_per_s <= SAME_RATE * other.best_gb_per_s
        for other in others
    )


def silent_by_chance(case: Analysis) -> frozenset[int]:
    """Nodes with paths that lose so many packets that single connections to and from them may fail for that alone."""
    lossy = {link for link, s in case.of(lossy_links).items() if s.share >= UNRELIABLE}
    uncounted = {
        link
        for link, s in case.of(judge_sent).items()
        if not s.num_packets and s.num_segments >= FEW_SEGMENTS and s.resent_share >= UNRELIABLE_TCP
    }
    return frozenset(n for link in lossy | uncounted for n in link) | lossy_to_master(case)
