"""What nodes reported at the roll call, sorted for comparison."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from allready.judging.majority import Split
from allready.judging.stated import said, stated
from allready.judging.values import MAX_EVIDENCE
from allready.model import Claim, Evidence, Phrase, TokenGap, ranges

HANDLED = frozenset({"duplicate_rank", "num_nodes_differs", "job_id_differs", "out_of_range", *TokenGap})
"""Reasons of a refusal that a rule of their own explains."""


class ClaimsByValue(Struct, frozen=True):
    """Claims by one value.  The members of `split` are positions in `claims`."""

    claims: tuple[Claim, ...]
    split: Split

    @property
    def odd(self) -> tuple[int, ...]:
        """Node ranks outside the majority; empty unless more than half of all share one value."""
        return tuple(sorted({self.claims[at].node_rank for at in self.split.outliers()}))

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The claims, those of the smallest group first."""
        return evidence(self.claims[at] for _, group in reversed(self.split.groups) for at in group)

    def clauses(self, option: str) -> tuple[Phrase, ...]:
        """`node 1 (gpu01): --nnodes is 3`, `node 0 (gpu00): --nnodes is 2`, the minority first."""
        groups = self.split.groups[::-1] if self.odd else self.split.groups
        return tuple(
            said(
                "{option} is {value} on node {nodes}" if value else "{option} is empty on node {nodes}",
                nodes=self._nodes(group),
                option=option,
                value=value,
            )
            for value, group in groups
        )

    def _nodes(self, group: Iterable[int]) -> str:
        """Node ranks, with host names while they are few."""
        names = {self.claims[at].node_rank: self.claims[at].name for at in group}
        if len(names) > 4:
            return ranges(sorted(names))
        return ", ".join(f"{rank} ({name})" if name else str(rank) for rank, name in sorted(names.items()))


def compare(claims: Iterable[Claim], value: Callable[[Claim], object], *, num_nodes: int) -> ClaimsByValue | None:
    """The claims of several nodes by one value; None where all agree.  `num_nodes`: of the job, also those not here."""
    claims = tuple(claims)
    split = Split.by({at: value(claim) for at, claim in enumerate(claims)}, num_members=num_nodes)
    return ClaimsByValue(claims, split) if len(split) > 1 else None


def current(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """The newest claim of every (node rank, host): a node that was refused counts as it came again."""
    last: dict[tuple[int, str, str], Claim] = {}
    for claim in sorted(claims, key=lambda c: (c.arrival_s, c.refused is None)):
        last[(claim.node_rank, claim.name, claim.address)] = claim
    return tuple(sorted(last.values(), key=lambda c: (c.node_rank, c.arrival_s)))


ROLL_CALL = "roll call on node 0"
ARRIVED = "node {node} ({party}) arrived after {seconds} s"


def party(claim: Claim) -> str:
    """`gpu1, 10.0.0.2, pid 1001`."""
    return ", ".join(part for part in (claim.name, claim.address, f"pid {claim.pid}" if claim.pid else "") if part)


def arrived(claim: Claim) -> Evidence:
    """When this node reported, and from where."""
    return stated(
        ROLL_CALL,
        ARRIVED,
        node_rank=claim.node_rank,
        node=claim.node_rank,
        party=party(claim),
        seconds=f"{claim.arrival_s:.1f}",
    )


def evidence(claims: Iterable[Claim]) -> tuple[Evidence, ...]:
    """The claims as they were made."""
    return tuple(
        stated(
            ROLL_CALL,
            ARRIVED + ": nnodes {nnodes}, nproc-per-node {nproc}, job id {job}[[, refused: {why}]]",
            node_rank=c.node_rank,
            node=c.node_rank,
            party=party(c),
            seconds=f"{c.arrival_s:.1f}",
            nnodes=c.num_nodes,
            nproc=c.nproc_per_node,
            job=repr(c.job_id),
            why=c.refused or None,
        )
        for c in list(claims)[:MAX_EVIDENCE]
    )
