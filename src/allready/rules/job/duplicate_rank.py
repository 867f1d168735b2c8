from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.model import Claim, Culprits, FaultClass, Hit, RemedyStep, RollCall, Severity, ranges
from allready.rules.job._claims import evidence, party


@Rule(
    code="JOB003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    title="Two nodes have the same node rank",
    message="two processes have node rank {node}: {parties}",
    remedy=RemedyStep(
        explanation="give one of them another --node-rank (free: {free}); if it is left over from an earlier start, "
        "end it on its host by its pid"
    ),
)
def duplicate_rank(roll: RollCall) -> Iterator[Hit]:
    """
    ## What it checks
    That no two processes reported to node 0 with the same node rank, node 0's own included. Both are named with host,
    address and pid; only the person who started them knows which of the two is wrong.
    ## Why it matters
    Two agents with one rank overwrite each other's entries in the store. The job hangs with `worker_count >
    world_size`, or some rank never comes, and no message gives the reason.
    ## Check by hand
    On both machines, with the pids above: `ps -o pid,lstart,args -p PID`, and `xargs -0 -n1 < /proc/PID/environ | grep
    -E 'RANK|SLURM'`.
    ## When it is harmless
    Never. A node that lost its connection and came back with the same rank is not counted.
    """
    by_rank: dict[int, dict[tuple[str, str, int], Claim]] = {}
    # One process may have asked several times: that it was admitted counts more than that it was not.
    for claim in sorted(roll.claims, key=lambda c: (c.refused is None, c.arrival_s)):
        if claim.refused in {None, "duplicate_rank"}:
            by_rank.setdefault(claim.node_rank, {})[(claim.name, claim.address, claim.pid)] = claim
    for node_rank, claims in sorted(by_rank.items()):
        parties = _parties(list(claims.values()))
        if any(c.refused for c in parties):
            both = " / ".join(map(party, parties[:6]))
            yield Hit(
                culprits=Culprits(nodes=(node_rank,)),
                values={
                    "node": node_rank,
                    "parties": both if len(parties) > 1 else said("{party} and another one", party=both),
                    "free": ranges(roll.missing) or "-",
                },
                evidence=evidence(parties),
            )


def _parties(claims: list[Claim]) -> list[Claim]:
    """Those that exclude each other, first come first; a host that was refused and admitted later is none of them."""
    admitted = {(c.name, c.address): c.arrival_s for c in claims if c.refused is None}
    return [
        c
        for c in sorted(claims, key=lambda c: c.arrival_s)
        if c.refused is None or c.arrival_s >= admitted.get((c.name, c.address), 0.0)
    ]
