"""Who holds the master port, how that is written, and what ends it."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from allready import model
from allready.judging.addresses import master_endpoint
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said, stated
from allready.judging.values import MAX_EVIDENCE, grouped, seen
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    MasterContactFacts,
    MasterPortFacts,
    PerNode,
    Phrase,
    PortHolder,
    RemedyStep,
    RollCall,
    Severity,
    UsageFacts,
    World,
)
from allready.model.addresses import is_misnamed
from allready.model.fill import UNKNOWN, words_of

STORES = frozenset({"torch-store", "allready"})
"""Services that belong to a distributed job: another job's when node 0 finds one on its own port."""

ANSWERED: Mapping[bool | None, str] = {True: "answered", False: "not answered", None: "not tried"}
"""What became of datagrams that a node sent, by `heard_by_datagram`."""

_IN_USE = ("in use", "EADDRINUSE")


def is_taken(facts: MasterPortFacts) -> bool:
    """Node 0 could not open the port because another process has it."""
    error = facts.error or ""
    return not facts.opened and (
        facts.holder is not None or facts.service is not None or any(w in error for w in _IN_USE)
    )


def holder_text(holder: PortHolder | None, service: str | None) -> str:
    """`pid 4242, python -m http.server, user=alice, started=2026-01-02T03:04:05 (http)`, with what is known."""
    parts = [f"pid {holder.pid if holder is not None and holder.pid is not None else '?'}"]
    if holder is not None:
        parts += [holder.command] if holder.command else []
        parts += [f"user={holder.user}"] if holder.user else []
        parts += [f"started={holder.started}"] if holder.started else []
    return ", ".join(parts) + (f" ({service})" if service else "")


def end_command(holder: PortHolder | None, port: int) -> str:
    """The command that ends the holder, or shows it to root when its pid may not be seen."""
    if holder is not None and holder.pid is not None:
        return f"kill {holder.pid}"
    return f"sudo ss -ltnp 'sport = :{port}'"


def taken_hit(world: World, node: int, facts: MasterPortFacts) -> Hit:
    """The hit of a rule about who holds the master port."""
    return Hit(
        culprits=Culprits(nodes=(node,)),
        values={
            "port": facts.port,
            "node": world.label(node),
            "holder": holder_text(facts.holder, facts.service),
            "end": end_command(facts.holder, facts.port),
        },
        evidence=port_evidence(facts),
    )


def port_evidence(facts: MasterPortFacts) -> tuple[Evidence, ...]:
    """What node 0 found on its port."""
    error: str | Phrase = facts.error or said("could not be opened")
    return tuple(evidence_of("master port", text, node_rank=0) for text in (error, facts.banner) if text)


@Rule(
    code="PRT004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PORT,
    title="Another program holds the master port",
    message="port[[ {port}]] on node {node} is in use by {holder}",
    remedy=(
        RemedyStep(explanation="give another port: --master-port N", where="every node"),
        RemedyStep(
            explanation="or end the program that holds it, if it is not needed", where="node {node}", command="{end}"
        ),
    ),
)
def port_taken(master_port: PerNode[MasterPortFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether node 0 could open the master port; if not, which process holds it, since when, and what answers there.
    ## Why it matters
    torch fails at once on node 0 (EADDRINUSE), and the workers connect to a program that does not understand them,
    until their timeouts.
    ## Check by hand
    On node 0: `sudo ss -ltnp 'sport = :PORT'`.
    ## When it is harmless
    Never for this job; if the other program is needed, choose another port.
    """
    for node, facts in master_port.items():
        if is_taken(facts) and facts.service not in STORES:
            yield taken_hit(world, node, facts)


@Rule(
    code="PRT011",
    severity=Severity.WARNING,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PORT,
    title="A port that the job wants is in use",
    message="node {node}: port[[ {port}]] is in use by {holder}",
    remedy=(
        RemedyStep(explanation="use a port that is free[[, for example {free}]]", where="every node"),
        RemedyStep(
            explanation="or end the program that holds it, if it is not needed", where="node {node}", command="{end}"
        ),
    ),
)
def asked_port_taken(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    On which TCP ports of `doctor --port-range` (else the master port, where a flag or a variable gives one) something
    listens on this machine, and what: pid, command, user, start.
    ## Why it matters
    The store of rank 0 cannot open its port (EADDRINUSE), or ranks connect to a program that does not understand
    them.
    ## Check by hand
    `sudo ss -ltnp 'sport = :PORT'`. Processes of other users are shown to root only.
    ## When it is harmless
    When this machine is not node 0, which alone opens the master port, or the job itself runs already.
    """
    for node, facts in usage.items():
        for one in facts.listeners:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "port": one.port,
                    "holder": holder_text(one.holder, None),
                    "free": facts.free_port or None,
                    "end": end_command(one.holder, one.port),
                },
                evidence=seen("/proc/net/tcp", {node: f"{one.port}: {holder_text(one.holder, None)}"}),
            )


_NOTHING = said("sent nothing")


@Rule(
    code="PRT008",
    severity=Severity.INFO,
    fault_class=FaultClass.HEALTHY,
    layer=Layer.READINESS,
    title="An unrelated client connected to the master port",
    message="{num} clients of the master port do not speak allready's protocol: {callers}",
    remedy=RemedyStep(
        explanation="no action is needed; if such an address is a node of this job, a training process may have been "
        "started there at the same time: start it after the check"
    ),
)
def stranger_on_port(roll: RollCall) -> Iterator[Hit]:
    """
    ## What it checks
    Clients that connected to the master port during the roll call and are not allready: a port scanner, a health check,
    a browser, a training process that was already started.
    ## Why it matters
    Here it does no harm: their messages are ignored. But a training job's store on this port would get the same
    visitors, and older versions of torch did not survive every one of them.
    ## Check by hand
    `sudo ss -tnp 'sport = :PORT'` on node 0 while it happens shows the address.
    ## When it is harmless
    Nearly always.
    """
    strangers = [c for c in roll.callers if c.kind == "stranger"]
    if strangers:
        shown = ", ".join(f"{c.address} ({c.detail})" if c.detail else c.address for c in strangers[:4])
        yield Hit(
            values={"num": len(strangers), "callers": shown + (", …" if len(strangers) > 4 else "")},
            evidence=tuple(
                stated(
                    "master port",
                    "{address}: {what}",
                    node_rank=0,
                    address=c.address,
                    what=words_of(c, "detail") or _NOTHING,
                )
                for c in strangers[:MAX_EVIDENCE]
            ),
        )


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


_SILENT = "silent"


@Rule(
    code="PRT006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PORT,
    title="Another service answers on the master port",
    message="a {service} service at {address} answers node {nodes} instead of node 0[[: {banner}]]",
    remedy=(
        RemedyStep(explanation="give a --master-port that is free on node 0", where="every node"),
        RemedyStep(explanation="or end what listens there", where="node 0", command="sudo ss -ltnp 'sport = :{port}'"),
    ),
)
def wrong_service(contact: PerNode[MasterContactFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Which service answers on the master port as the other nodes see it: http, ssh, grpc (a JAX coordinator), tls, or one
    that accepts and sends nothing.
    ## Why it matters
    The connection succeeds, so torch's client waits for an answer that never comes, and blames the network after its
    timeout.
    ## Check by hand
    `curl -v telnet://MASTER_ADDR:PORT` from the named node; `sudo ss -ltnp 'sport = :PORT'` on node 0.
    ## When it is harmless
    When a proxy or a load balancer is there on purpose, and node 0 is not started yet.  A silent one may also be node 0
    itself, stopped or without CPU time: the kernel accepts connections in its place.
    """
    found = grouped(
        (
            (
                master_endpoint(facts),
                facts.service or "unknown",
                facts.detail[:80] if facts.detail != facts.service else "",
                facts.master_port,
            ),
            node,
        )
        for node, facts in contact.items()
        if facts.outcome == "wrong_service" and not is_misnamed(facts.master_addr, facts.addresses)
    )
    for (address, service, banner, port), nodes in found.items():
        yield Hit(
            culprits=Culprits(nodes=(0,)),
            values={
                "address": address,
                "service": service,
                "nodes": world.labels(nodes),
                "banner": banner or UNKNOWN,
                "port": port,
            },
            # The kernel accepts for a process that is stopped or gets no CPU, too: node 0's own, for one.
            confidence=Confidence.LIKELY if service == _SILENT else Confidence.CERTAIN,
            evidence=seen("attempts to reach node 0", dict.fromkeys(nodes, f"{address}: {service} {banner}".rstrip())),
        )
