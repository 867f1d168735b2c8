from collections.abc import Iterator

from allready import model
from allready.judging.addresses import (
    host_is_silent,
    is_misnamed,
    is_name,
    is_own,
    is_refused_by_filter,
    master_endpoint,
    others_joined,
)
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import MAX_EVIDENCE, grouped
from allready.model.fill import words_of


@Rule(
    code="JOB011",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_ABSENT,
    layer=Layer.ABSENCE,
    title="Node 0 is absent",
    message="node 0 has not started: node {nodes} got no answer at {address} within {waited_s} s",
    remedy=(
        model.RemedyStep(explanation="start the command with --node-rank 0", where="{master}"),
        model.RemedyStep(
            explanation="if it is running there, compare its --master-port with {port}, and what the name resolves to "
            "on both sides",
            where="{master}",
            command="ss -ltnp; getent hosts {master}",
        ),
    ),
)
def master_absent(contact: model.PerNode[model.MasterContactFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    What the other nodes see of node 0 while none of them gets through. Node 0 is absent when its machine does not
    respond on a subnet that this node is directly connected to (only "possible" where MASTER_ADDR is a name, see
    PRT003), or when the machine refuses the port and no allready answers on a port nearby.

    A refused port alone has two possible causes: node 0 is not started, or it listens on another port. PRT001 then
    comes first, and this finding is possible. Silence (PRT002) and a missing route (PRT003) beyond a router are
    findings of their own.
    ## Why it matters
    The store lives on node 0. Workers retry for 60 to 1800 seconds and then report a network timeout.
    ## Check by hand
    On node 0's machine: `pgrep -af allready`, `ss -ltnp`; from here: `ping MASTER_ADDR`, `ip neigh show`.
    ## When it is harmless
    While node 0 is still being started. Before `--wait` has passed the status is "waiting".
    """
    if others_joined(case.roll, contact.values()):
        return
    net = case.facts(model.NetFacts)
    found = grouped((_confidence(facts, net.get(node)), node) for node, facts in contact.items())
    confidence = max((c for c in found if c is not None), key=lambda c: c.weight, default=None)
    if confidence is None:
        return
    nodes = found[confidence]
    first = contact[nodes[0]]
    yield model.Hit(
        culprits=model.Culprits(nodes=(0,)),
        confidence=confidence,
        values={
            "nodes": case.world.labels(nodes),
            "address": master_endpoint(first),
            "waited_s": f"{max(contact[n].waited_s for n in nodes):.1f}",
            "master": first.master_addr,
            "port": first.master_port,
        },
        evidence=tuple(
            stated(
                "attempts to reach node 0",
                "{outcome}, {num} attempts[[: {detail}]]",
                node_rank=n,
                outcome=contact[n].outcome,
                num=contact[n].attempts,
                detail=words_of(contact[n], "detail") or None,
            )
            for n in nodes[:MAX_EVIDENCE]
        ),
    )


def _confidence(facts: model.MasterContactFacts, net: model.NetFacts | None) -> model.Confidence | None:
    if host_is_silent(facts, net):  # a name may be another machine here: PRT003
        return model.Confidence.POSSIBLE if is_name(facts.master_addr) else model.Confidence.LIKELY
    is_here = is_misnamed(facts.master_addr, facts.addresses) or is_own(facts, net)
    if facts.outcome != "refused" or is_refused_by_filter(facts) or is_here:
        return None
    if facts.nearby is None:
        return model.Confidence.POSSIBLE
    return None if any(service == "allready" for _, service in facts.nearby) else model.Confidence.LIKELY
