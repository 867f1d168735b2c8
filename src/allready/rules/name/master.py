"""What the master's name resolves to."""

import ipaddress
import shlex
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from allready import model
from allready.judging.addresses import (
    has_route,
    hosts_lines,
    is_own,
    on_link,
    others_joined,
    own_addresses,
    reached,
    resolved,
)
from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.registry import Layer, Rule
from allready.judging.stated import Text, said
from allready.judging.values import seen
from allready.model import (
    Culprits,
    FaultClass,
    Hit,
    HostFacts,
    LaunchFacts,
    MasterContactFacts,
    NameFacts,
    PerNode,
    Phrase,
    RemedyStep,
    Severity,
)
from allready.model.addresses import all_loopback, is_literal_loopback, is_loopback, parse
from allready.model.fill import words_of


@Rule(
    code="NAM001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    layer=Layer.NAME,
    title="MASTER_ADDR does not resolve",
    message="node {nodes} cannot resolve MASTER_ADDR {master}[[: {error}]]",
    remedy=(
        RemedyStep(
            explanation="give the address of node 0 instead of its name: --master-addr ADDRESS", where="every node"
        ),
        RemedyStep(
            explanation="or add the name to the hosts file",
            where="node {nodes}",
            command="echo 'ADDRESS {master}' | sudo tee -a /etc/hosts",
            each="on_hosts",
        ),
        RemedyStep(
            explanation="a pod's name comes from a headless Service (clusterIP: None) that selects it, with the pod's "
            "subdomain as its name; with publishNotReadyAddresses: true the name is there before the pod is ready",
            command="kubectl get service,endpoints,pods -o wide",
            each="in_pods",
        ),
        RemedyStep(
            explanation="let the Service publish pods that are not ready",
            command='kubectl patch service SERVICE -p \'{{"spec":{{"publishNotReadyAddresses":true}}}}\'',
            each="in_pods",
        ),
    ),
)
def master_unresolved(names: PerNode[NameFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That MASTER_ADDR resolves to at least one address on every node. A name that resolved later (a pod's name often
    takes seconds to appear in DNS) is no fault once the node got through.
    ## Why it matters
    The node retries until its timeout, 60 to 1800 s, and the resolver's error is buried in a traceback.
    ## Check by hand
    `getent ahosts MASTER_ADDR` on the named nodes, and on one where it works; `cat /etc/resolv.conf`.
    ## When it is harmless
    While DNS does not have the name yet, in the first seconds of a pod.
    """
    contact = case.facts(MasterContactFacts)
    bad: dict[tuple[str, str | None], list[int]] = {}
    for node, facts in names.items():
        met = contact.get(node)
        if met is not None and met.outcome != "not_tried":
            unresolved = met.outcome == "unresolved"
        else:
            unresolved = not facts.master_addresses
        if unresolved:
            error = facts.master_error or (met.detail if met is not None else "") or None
            bad.setdefault((facts.master_name, error), []).append(node)
    for (master, error), nodes in bad.items():
        yield Hit(
            culprits=Culprits(nodes=tuple(nodes)),
            values={
                "nodes": case.world.labels(nodes),
                "master": master,
                "error": _why(names[nodes[0]], error),
                **_where_names_come_from(case, nodes),
            },
            evidence=seen("getaddrinfo", {n: _shown(names[n], master, _why(names[n], error)) for n in nodes}),
        )


def _why(names: NameFacts, error: str | None) -> Text | None:
    """The resolver's answer; where it was asked while node 0 was called, what came of that."""
    return words_of(names, "master_error") or error


def _shown(names: NameFacts, master: str, error: Text | None) -> Phrase:
    """The resolver's answer, and whom it asks on that node."""
    asked = ", ".join([*names.order, *names.servers])
    return said("{name}: {error}[[ (asked: {asked})]]", name=master, error=error, asked=asked or None)


def _where_names_come_from(case: Analysis, nodes: list[int]) -> dict[str, list[dict[str, str]]]:
    """Which steps of the remedy fit: in a pod the hosts file is not the place."""
    hosts, launch = case.facts(HostFacts), case.facts(LaunchFacts)
    in_pods = any(
        (node in hosts and hosts[node].container == "kubernetes")
        or (node in launch and (launch[node].scheduler or "").startswith("kubernetes"))
        for node in nodes
    )
    return {"on_hosts": [] if in_pods else [{}], "in_pods": [{}] if in_pods else []}


_LOCAL_SERVICE = frozenset({"wrong_service", "stale_store", "other_job"})
"""A service answers on this machine: with a literal localhost it is the finding (PRT005, PRT006)."""


@Rule(
    code="NAM002",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.NAME,
    title="MASTER_ADDR resolves to loopback on a node other than node 0",
    message="MASTER_ADDR {master}[[ resolves to {addresses}]] on node {nodes}: a loopback address leads to no other "
    "machine",
    remedy=(
        model.RemedyStep(
            explanation="give an address of node 0 that the other nodes can reach: --master-addr ADDRESS",
            where="every node",
        ),
        model.RemedyStep(explanation="list the addresses of node 0", where="node 0", command="hostname -I"),
        model.RemedyStep(
            explanation="or correct the line of {master} in /etc/hosts", where="node {nodes}", command="{find}"
        ),
    ),
)
def master_is_loopback(names: model.PerNode[model.NameFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Whether MASTER_ADDR resolves only to 127.0.0.0/8 or ::1 on a node other than node 0, as the line `127.0.1.1
    HOSTNAME` of Debian and Ubuntu and copied /etc/hosts files make it, or is literally localhost.
    ## Why it matters
    The node connects to itself instead of node 0 and is refused by its own machine until the timeout.
    ## Check by hand
    `getent ahosts MASTER_ADDR` on the named nodes must print an address of node 0's network interface.
    ## When it is harmless
    On node 0 itself, which listens on all its addresses. When all nodes of the job run on this one machine: a node that
    got through to node 0 is therefore never named.
    """
    if case.world.num_nodes < 2:
        return
    contact, roll = case.facts(model.MasterContactFacts), case.roll
    bad: dict[tuple[str, tuple[str, ...], bool], list[int]] = {}
    for node, facts in names.items():
        met = contact.get(node)
        addresses = facts.master_addresses or (met.addresses if met is not None else ())
        if met is not None and met.outcome == "loopback":
            addresses = met.addresses or addresses
        literal = is_literal_loopback(facts.master_name)
        if node == 0 or reached(met) or not all_loopback(addresses):
            continue
        if not (literal and met is not None and met.outcome in _LOCAL_SERVICE):
            bad.setdefault((facts.master_name, addresses, literal), []).append(node)
    for (_, addresses, literal), nodes in bad.items():
        yield _hit(case.world, names, tuple(nodes), addresses, literal=literal)
    own = names.get(0)
    if own is None or roll is None or bad:
        return
    if is_literal_loopback(own.master_name) and roll.missing and not others_joined(roll):
        # A node that is started elsewhere with the same command connects to itself; but perhaps none was started yet.
        hit = _hit(case.world, names, (0,), own.master_addresses, literal=True)
        yield replace(hit, severity=model.Severity.WARNING, confidence=model.Confidence.POSSIBLE)


def _hit(
    world: model.World,
    names: model.PerNode[model.NameFacts],
    nodes: tuple[int, ...],
    addresses: tuple[str, ...],
    *,
    literal: bool,
) -> model.Hit:
    master = names[nodes[0]].master_name
    shown = {n: resolved(master, addresses, names[n].master_lines) for n in nodes}
    return model.Hit(
        culprits=model.Culprits(nodes=nodes, variables=("MASTER_ADDR",) if literal else ()),
        # A literal localhost may be intended: all nodes on one machine, and node 0 not started.  A name never is.
        confidence=model.Confidence.LIKELY if literal else model.Confidence.CERTAIN,
        values={
            "nodes": world.labels(nodes),
            "master": master,
            "addresses": None if addresses in {(), (master,)} else ", ".join(addresses),
            "find": "" if literal else f"grep -n -w {shlex.quote(master)} /etc/hosts",
        },
        evidence=seen("getaddrinfo", shown),
    )


@Rule(
    code="NAM006",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.NAME,
    title="A node other than node 0 has MASTER_ADDR itself",
    message="node {node} has MASTER_ADDR {master}[[ ({address})]] itself, and is not node 0",
    remedy=(
        model.RemedyStep(explanation="give the address of node 0: --master-addr ADDRESS", where="node {node}"),
        model.RemedyStep(
            explanation="or, if this machine should be node 0, start it with --node-rank 0", where="node {node}"
        ),
    ),
)
def master_is_self(
    contact: model.PerNode[model.MasterContactFacts], net: model.PerNode[model.NetFacts], case: Analysis
) -> Iterator[model.Hit]:
    """
    ## What it checks
    Whether the address that a node tries for node 0 belongs to one of its own interfaces, while it has not got through.
    ## Why it matters
    The node waits for itself. Either it has the wrong node rank, or each node was given its own address as MASTER_ADDR,
    for example by `--master-addr $(hostname)` in a script that runs everywhere.
    ## Check by hand
    `ip -br address` on the named node, and `getent ahosts MASTER_ADDR`.
    ## When it is harmless
    When several nodes of the job share one machine and node 0 is not started yet.
    """
    for node, facts in contact.items() if case.world.num_nodes > 1 else ():
        if node == 0 or reached(facts) or not is_own(facts, net[node]):
            continue
        holder = facts.local_holder
        names = case.facts(model.NameFacts).get(node)
        text = said(
            "{outcome} at {address}[[ (/etc/hosts line {lines})]]: {detail}[[; listens here: pid {holder}]]",
            outcome=facts.outcome,
            address=f"{facts.address}:{facts.master_port}",
            lines=hosts_lines(names.master_lines, (facts.address or "",)) if names is not None else None,
            detail=facts.detail,
            holder=f"{holder.pid} {holder.command}" if holder is not None else None,
        )
        yield model.Hit(
            culprits=model.Culprits(nodes=(node,)),
            confidence=model.Confidence.LIKELY,
            values={"node": case.world.label(node), "master": facts.master_addr, "address": facts.address or None},
            evidence=seen("attempts to reach node 0", {node: text}),
        )


@Rule(
    code="NAM003",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.NAME,
    title="MASTER_ADDR resolves to different machines on different nodes",
    message="MASTER_ADDR resolves to different addresses: {split}",
    remedy=(
        model.RemedyStep(explanation="give the same address of node 0: --master-addr ADDRESS", where="every node"),
        model.RemedyStep(
            explanation="or make the name resolve to the same address everywhere",
            where="every node",
            command="getent ahosts {master}",
        ),
    ),
)
def master_differs(names: model.PerNode[model.NameFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    The addresses that MASTER_ADDR resolves to on each node, in any order and spelling. Nodes that share an address
    agree. Where node 0's interfaces are known, a node is at fault when it has none of their addresses; otherwise the
    minority is, and on a tie no node is named.
    ## Why it matters
    Nodes with another address connect to another machine for the store, until the timeout.
    ## Check by hand
    `getent ahosts MASTER_ADDR` on every node, beside `hostname -I` on node 0.
    ## When it is harmless
    When node 0 has several networks and the nodes reach it over different ones; when only node 0 resolves its own name
    to loopback; when the address is translated on the path (NAT). A node that got through is never named.
    """
    if case.world.num_nodes < 2:
        return
    sets = {n: frozenset(f.master_addresses) for n, f in names.items() if f.master_addresses}
    sets = {n: a for n, a in sets.items() if not all_loopback(tuple(a))}
    merged = _merge(sets)
    if len(set(merged.values())) < 2:
        return
    contact, node_0 = case.facts(model.MasterContactFacts), case.facts(model.NetFacts).get(0)
    right = {n for n in sets if reached(contact.get(n)) or sets[n] & own_addresses(node_0)}
    num_loopback = sum(all_loopback(tuple(f.master_addresses)) for f in names.values())
    split = Split.by(merged, num_members=case.world.num_nodes - num_loopback)
    odd = split.outliers()
    if right:
        agreeing = {merged[r] for r in right}
        own = {0} if node_0 is not None else set()
        odd = tuple(n for n in sorted(set(sets) - right - own) if merged[n] not in agreeing)
        if not odd:
            return
    first = sorted(sets, key=lambda n: (n not in odd, n))
    yield model.Hit(
        culprits=model.Culprits(nodes=odd) if odd else model.Culprits(variables=("MASTER_ADDR",)),
        values={"split": split, "master": names[first[0]].master_name},
        evidence=seen(
            "getaddrinfo", {n: resolved(names[n].master_name, [merged[n]], names[n].master_lines) for n in first}
        ),
    )


def _merge(sets: Mapping[int, frozenset[str]]) -> dict[int, str]:
    """All addresses of the nodes that share at least one, as one text per node."""
    pools: list[set[str]] = []
    for addresses in sets.values():
        touching = [p for p in pools if p & addresses]
        pools = [p for p in pools if p not in touching] + [set(addresses).union(*touching)]
    return {n: ", ".join(sorted(next(p for p in pools if p & a))) for n, a in sets.items()}


@Rule(
    code="NAM007",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.NAME,
    title="MASTER_ADDR is not an address of node 0",
    message="node {node} does not have the address of MASTER_ADDR {master} ({addresses}): the others connect to "
    "another machine",
    remedy=(
        model.RemedyStep(
            explanation="give an address that node 0 has ({own}): --master-addr ADDRESS", where="every node"
        ),
        model.RemedyStep(explanation="or start the command with --node-rank 0 there", where="{master}"),
    ),
)
def master_not_here(
    names: model.PerNode[model.NameFacts], net: model.PerNode[model.NetFacts], case: Analysis
) -> Iterator[model.Hit]:
    """
    ## What it checks
    Whether node 0 has one of the addresses that MASTER_ADDR resolves to there, while no other node has got through.
    ## Why it matters
    Node 0 listens on its own machine, all others connect to another one. It happens when two machines were both started
    as node 0, when ranks are assigned in another order than the host list, or by a typing error.
    ## Check by hand
    `getent ahosts MASTER_ADDR` and `hostname -I` on node 0.
    ## When it is harmless
    When the address is translated: a Kubernetes service, a published container port, a cloud's public address. Inside a
    container and with a public address it is therefore only a warning, unless the address lies in node 0's own subnet
    or node 0 has no route to it; and nothing is reported once another node has got through.
    """
    own, facts = net.get(0), names.get(0)
    if case.world.num_nodes < 2 or own is None or facts is None or others_joined(case.roll):
        return
    claims = case.roll.claims if case.roll is not None else ()
    if any(c.node_rank == 0 and c.refused == "duplicate_rank" for c in claims):
        return  # another node 0 was found there: JOB003
    wanted, have = facts.master_addresses, own_addresses(own)
    if not wanted or any(is_loopback(a) or a.partition("%")[0] in have for a in wanted):
        return
    machine = case.facts(model.HostFacts).get(0)
    in_container = machine is not None and machine.container is not None
    plain = any(on_link(own, a) for a in wanted) or not any(has_route(own, a) for a in wanted)
    translated = not plain and (in_container or all(_is_public(a) for a in wanted))
    reachable = [a for a in sorted(have) if not is_loopback(a) and not a.startswith("fe80:")]
    yield model.Hit(
        culprits=model.Culprits(nodes=(0,)),
        severity=model.Severity.WARNING if translated else None,
        confidence=model.Confidence.POSSIBLE if translated else model.Confidence.LIKELY,
        values={
            "master": facts.master_name,
            "addresses": ", ".join(wanted),
            "node": case.world.label(0),
            "own": ", ".join(reachable[:4]) or "-",
        },
        evidence=(
            *seen("getaddrinfo", {0: resolved(facts.master_name, wanted, facts.master_lines)}),
            *seen("interfaces", {0: ", ".join(reachable[:16])}),
        ),
    )


def _is_public(address: str) -> bool:
    parsed = parse(address)
    return isinstance(parsed, ipaddress.IPv4Address) and parsed.is_global
