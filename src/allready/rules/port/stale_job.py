"""PRT005."""

from collections.abc import Iterator

from allready.judging.addresses import endpoint, is_misnamed
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    LaunchFacts,
    MasterContactFacts,
    MasterPortFacts,
    PerNode,
    PortHolder,
    RemedyStep,
    RollCall,
    Severity,
    World,
)
from allready.rules.port._holder import STORES, end_command, holder_text, is_taken, port_evidence


@Rule(
    code="PRT005",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_ABSENT,
    since="0.1",
    layer=Layer.PORT,
    title="Another job or an earlier run holds the master port",
    message="port {port} of node {node} belongs to another job, or to an earlier run of this one: {holder}",
    remedy=(
        RemedyStep(
            explanation="if that is a leftover, end it",
            where="node {node}",
            command="{end}",
        ),
        RemedyStep(
            explanation="otherwise give this job another port: --master-port N",
            where="every node",
        ),
    ),
)
def stale_job(
    launch: PerNode[LaunchFacts],
    world: World,
    master_port: PerNode[MasterPortFacts] | None = None,
    contact: PerNode[MasterContactFacts] | None = None,
    roll: RollCall | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Whether what answers on the master port is the store of another job: torch's TCPStore, or an allready with another
    job id, or with this one's from an earlier run, or one whose job runs already.  torch's store does not say whose it
    is; an allready names its process.  Node 0 knows the process that holds its port; the other nodes know only what
    answers.  An allready that is still waiting for exactly this node is rather the same job with another id: JOB006
    names both.
    ## Why it matters
    Workers enter the old store and wait there for ever: `worker_count > world_size`, or 1800 s of silence.  Most often
    it is a rank 0 that survived the end of its job.
    ## Check by hand
    On node 0: `sudo ss -ltnp 'sport = :PORT'`, then `ps -o pid,user,lstart,cmd -p PID`.
    ## When it is harmless
    When that job is alive and wanted: then this one needs another port, and the old one is not to be ended.
    """
    for node, facts in (master_port or {}).items():
        same_job = roll is not None and any(c.refused and c.refused != "job_id_differs" for c in roll.claims)
        if is_taken(facts) and facts.service in STORES and not same_job:  # JOB003, JOB004
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "port": facts.port,
                    "node": world.label(node),
                    "holder": holder_text(facts.holder, facts.service),
                    "end": end_command(facts.holder, facts.port),
                },
                evidence=port_evidence(facts),
                fault_time=facts.holder.started if facts.holder is not None else None,
            )
            return
    if contact is None:
        return
    wanted = _wanted(roll)
    found: dict[tuple[str, str, PortHolder | None], list[int]] = {}
    for node, met in contact.items():
        same_job = met.outcome == "other_job" and node in wanted  # JOB006
        if node not in launch or same_job or is_misnamed(met.master_addr, met.addresses):
            continue
        if met.outcome in {"stale_store", "other_job"}:
            where = endpoint(met.address or met.master_addr, met.master_port)
            said = met.service or ("torch-store" if met.outcome == "stale_store" else "allready")
            found.setdefault((where, said, met.holder), []).append(node)
    for (where, said, holder), nodes in found.items():
        port = contact[nodes[0]].master_port
        yield Hit(
            culprits=Culprits(nodes=(0,)),
            confidence=Confidence.CERTAIN,
            values={
                "port": port,
                "node": world.label(0),
                "holder": holder_text(holder, said) if holder is not None else f"{where} ({said})",
                "end": end_command(holder, port),
            },
            evidence=tuple(
                Evidence(
                    source="attempts to reach node 0",
                    node_rank=n,
                    text=f"{where}: {contact[n].outcome}, {contact[n].detail}",
                )
                for n in nodes[:16]
            ),
        )


def _wanted(roll: RollCall | None) -> set[int]:
    """Nodes that were refused for their job id by a node 0 that still waits for them."""
    if roll is None:
        return set()
    return {c.node_rank for c in roll.claims if c.refused == "job_id_differs"} & set(roll.missing)
