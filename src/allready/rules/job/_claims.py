"""What nodes said about themselves at the roll call, sorted for comparison."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from allready.judging.majority import majority
from allready.model import Claim, Evidence, RollCall, ranges

HANDLED = frozenset({"duplicate_rank", "num_nodes_differs", "job_id_differs", "out_of_range"})
"""Reasons of a refusal that a rule of their own explains."""


class Group(Struct, frozen=True):
    """Nodes that gave the same value."""

    value: str
    claims: tuple[Claim, ...]

    def __str__(self) -> str:
        """`4 [0-2]`, with host names while they are few."""
        ranks = sorted({c.node_rank for c in self.claims})
        if len(ranks) > 4:
            return f"{self.value or '(empty)'} [{ranges(ranks)}]"
        names = {c.node_rank: c.name for c in self.claims}
        return f"{self.value or '(empty)'} [{', '.join(f'{r} ({names[r]})' if names[r] else str(r) for r in ranks)}]"


def current(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """The last word of every (node rank, host): a node that was refused counts as it came again."""
    last: dict[tuple[int, str, str], Claim] = {}
    for claim in sorted(claims, key=lambda c: (c.arrival_s, c.refused is None)):
        last[(claim.node_rank, claim.name, claim.address)] = claim
    return tuple(sorted(last.values(), key=lambda c: (c.node_rank, c.arrival_s)))


def groups(claims: Iterable[Claim], value: Callable[[Claim], object]) -> tuple[Group, ...]:
    """Claims by value, the largest group first; of equal ones the one with the smallest node rank."""
    by_value: dict[str, list[Claim]] = {}
    for claim in claims:
        by_value.setdefault(str(value(claim)), []).append(claim)
    found = [Group(v, tuple(c)) for v, c in by_value.items()]
    return tuple(sorted(found, key=lambda g: (-len(g.claims), min(c.node_rank for c in g.claims))))


def minority(found: tuple[Group, ...]) -> tuple[int, ...]:
    """Node ranks outside the majority; empty unless more than half of all share one value."""
    claims = [c for g in found for c in g.claims]
    values = {at: g.value for at, g in enumerate(g for g in found for _ in g.claims)}
    most = majority(values)
    return tuple(sorted({claims[at].node_rank for at in most.odd})) if most is not None else ()


def text(found: tuple[Group, ...]) -> str:
    """All groups in one line, neutral in language."""
    return ", ".join(map(str, found))


def party(claim: Claim) -> str:
    """`gpu1, 10.0.0.2, pid 1001`."""
    return ", ".join(part for part in (claim.name, claim.address, f"pid {claim.pid}" if claim.pid else "") if part)


def evidence(claims: Iterable[Claim], *, most: int = 16) -> tuple[Evidence, ...]:
    """The claims as they were made."""
    return tuple(
        Evidence(
            source="roll call on node 0",
            node_rank=c.node_rank,
            text=f"node {c.node_rank} ({party(c)}) arrived after {c.arrival_s:.1f} s: nnodes {c.num_nodes}, "
            f"nproc-per-node {c.nproc_per_node}, job id {c.job_id!r}"
            + (f", refused: {c.refused}" if c.refused else ""),
        )
        for c in list(claims)[:most]
    )


def with_node_0(roll: RollCall, name: str, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The claims, and node 0's own nnodes where its claim was not sent along (a refused node gets part of the roll)."""
    if any(c.node_rank == 0 and c.refused is None for c in claims):
        return claims
    own = Claim(
        node_rank=0, name=name, address="", pid=0, num_nodes=roll.num_nodes, nproc_per_node=0, job_id="", arrival_s=0.0
    )
    return (own, *claims)
