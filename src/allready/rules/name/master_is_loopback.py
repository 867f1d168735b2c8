from collections.abc import Iterator

from msgspec.structs import replace

from allready import model
from allready.judging.addresses import all_loopback, is_literal_loopback, others_joined, reached
from allready.judging.analysis import Analysis
from allready.judging.names import resolved
from allready.judging.registry import Layer, Rule
from allready.judging.values import seen

_LOCAL_SERVICE = frozenset({"wrong_service", "stale_store", "other_job"})
"""A service answers on this machine: with a literal localhost it is the finding (PRT005, PRT006)."""


@Rule(
    code="NAM002",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.NAME,
    title="MASTER_ADDR resolves to loopback on a node other than node 0",
    message="MASTER_ADDR {master} resolves to {addresses} on node {nodes}: a loopback address leads to no other "
    "machine",
    remedy=(
        model.RemedyStep(
            explanation="give an address of node 0 that the other nodes can reach: --master-addr ADDRESS",
            where="every node",
        ),
        model.RemedyStep(explanation="list the addresses of node 0", where="node 0", command="hostname -I"),
        model.RemedyStep(
            explanation="or correct the line of {master} in /etc/hosts",
            where="node {nodes}",
            command="grep -n -w {master} /etc/hosts",
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
        values={"nodes": world.labels(nodes), "master": master, "addresses": ", ".join(addresses) or master},
        evidence=seen("getaddrinfo", shown),
    )
