from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import MAX_EVIDENCE, on_nodes
from allready.model import Culprits, FaultClass, Hit, NetFacts, PerNode, RemedyStep, Severity, TransportFacts
from allready.rules.net._interfaces import exports_on, holder, needed_choices, shared_addresses


@Rule(
    code="NET009",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    layer=Layer.NAME,
    applies=Applies.FACTS,
    title="Several nodes would use the same address",
    message="{libraries} on nodes {nodes} would all publish {address}[[ (interface {interface})]] to their peers: "
    "each of them would connect to itself",
    remedy=(
        RemedyStep(
            explanation="set an interface whose address only this node has",
            where="node {on}",
            command="{command}",
            each="exports",
        ),
        RemedyStep(
            explanation="if the address should be unique, two machines have the same one: change it on all but one",
            where="node {nodes}",
            command="ip -br addr",
        ),
    ),
)
def same_address(transport: PerNode[TransportFacts], net: PerNode[NetFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That no two machines chose the same address for NCCL or Gloo. Nodes that are processes of one machine may.
    ## Why it matters
    Each rank publishes the address of its interface. A bridge such as docker0 has 172.17.0.1 on every machine, so a
    rank that connects to a peer's 172.17.0.1 reaches itself: refused, or hung after 30 s to some minutes.
    ## Check by hand
    `ip -br addr` on the named nodes; `arping -D -I IFNAME ADDRESS` finds a real conflict on one network.
    ## When it is harmless
    When these nodes share one network namespace and the check could not detect it.
    """
    chosen = case.of(needed_choices)
    shared = case.of(shared_addresses)
    for address, nodes in sorted(shared.items()):
        users = [c for n in nodes for c in chosen[n] if address in c.choice.addresses]
        interfaces = sorted({i.name for n in nodes[:64] if (i := holder(net.get(n), address))})
        is_set = sorted({c.choice.variable for c in users if c.choice.pattern is not None})
        yield Hit(
            culprits=Culprits(nodes=nodes, variables=tuple(is_set)),
            values={
                "libraries": ", ".join(sorted({c.backend for c in users}, reverse=True)),
                "nodes": on_nodes(case.world, nodes),
                "address": address,
                "interface": ", ".join(interfaces[:3]) or None,
                "exports": exports_on(case, nodes, sorted({c.choice.variable for c in users}), shared),
            },
            evidence=tuple(
                stated(
                    c.choice.variable,
                    "{backend} on node {node}: {choice}",
                    node_rank=c.node,
                    backend=c.backend,
                    node=c.node,
                    choice=c.text,
                )
                for c in users[:MAX_EVIDENCE]
            ),
        )
