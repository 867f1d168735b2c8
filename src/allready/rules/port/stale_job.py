from collections.abc import Iterator

from msgspec.structs import replace

from allready import model
from allready.judging.addresses import is_misnamed, master_endpoint
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import grouped, seen
from allready.model.fill import words_of
from allready.rules.port._holder import STORES, end_command, holder_text, is_taken, taken_hit


@Rule(
    code="PRT005",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_ABSENT,
    layer=Layer.PORT,
    title="Another job or an earlier run holds the master port",
    message="port {port} of node {node} belongs to another job, or to an earlier run of this one: {holder}",
    remedy=(
        model.RemedyStep(explanation="if that is a leftover, end it", where="node {node}", command="{end}"),
        model.RemedyStep(explanation="otherwise give this job another port: --master-port N", where="every node"),
    ),
)
def stale_job(launch: model.PerNode[model.LaunchFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Whether the store of another job answers on the master port: torch's TCPStore, or an allready with another job id,
    or with this one's from an earlier run, or one whose job already runs. torch's store does not identify its job; an
    allready names its process. Node 0 knows the process that holds its port; the other nodes know only what answers. An
    allready that still waits for exactly this node is probably the same job with another id: JOB006 names both.
    ## Why it matters
    Workers join the old store and wait there indefinitely: `worker_count > world_size`, or 1800 s of silence. Most
    often it is a rank 0 that survived the end of its job.
    ## Check by hand
    On node 0: `sudo ss -ltnp 'sport = :PORT'`, then `ps -o pid,user,lstart,cmd -p PID`.
    ## When it is harmless
    When that job is alive and wanted: then this one needs another port.
    """
    claims = case.roll.claims if case.roll is not None else ()
    same_job = any(c.refused and c.refused != "job_id_differs" for c in claims)  # JOB003, JOB004
    for node, own in case.facts(model.MasterPortFacts).items():
        if is_taken(own) and own.service in STORES and not same_job:
            started = own.holder.started if own.holder is not None else None
            yield replace(taken_hit(case.world, node, own), fault_time=started)
            return
    # Nodes that a node 0 refused for their job id while it still waits for them: JOB006.
    waited_for = {c.node_rank for c in claims if c.refused == "job_id_differs"}
    waited_for &= set(case.roll.missing) if case.roll is not None else set()
    contact = case.facts(model.MasterContactFacts)
    found = grouped(
        ((master_endpoint(facts), facts.service or SERVICES[facts.outcome], facts.holder), node)
        for node, facts in contact.items()
        if node in launch
        and facts.outcome in SERVICES
        and not (facts.outcome == "other_job" and node in waited_for)
        and not is_misnamed(facts.master_addr, facts.addresses)
    )
    for (address, service, holder), nodes in found.items():
        port = contact[nodes[0]].master_port
        yield model.Hit(
            culprits=model.Culprits(nodes=(0,)),
            confidence=model.Confidence.CERTAIN,
            values={
                "port": port,
                "node": case.world.label(0),
                "holder": holder_text(holder, service) if holder is not None else f"{address} ({service})",
                "end": end_command(holder, port),
            },
            evidence=seen(
                "attempts to reach node 0",
                {
                    n: said(
                        "{address}: {outcome}, {what}",
                        address=address,
                        outcome=contact[n].outcome,
                        what=words_of(contact[n], "detail"),
                    )
                    for n in nodes
                },
            ),
        )


SERVICES = {"stale_store": "torch-store", "other_job": "allready"}
"""Outcome of an attempt -> whose answer it is."""
