from collections.abc import Iterator

from allready import model
from allready.judging.addresses import all_loopback, is_private
from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import brief
from allready.judging.registry import Applies, Layer, Rule
from allready.rules.net._interfaces import (
    Chosen,
    choice_hit,
    is_veth,
    machine,
    needed_choices,
    own_networks,
    shared_addresses,
)


@Rule(
    code="NET012",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.PATH,
    applies=Applies.FACTS,
    title="The chosen interface leads to no other machine",
    message="{library} on node {nodes} will use only {interfaces}, which leads to no other machine",
    remedy=model.RemedyStep(
        explanation="set an interface that leads to the other nodes",
        where="node {on}",
        command="{command}",
        each="exports",
    ),
)
def ifname_is_virtual(
    transport: model.PerNode[model.TransportFacts],
    net: model.PerNode[model.NetFacts],
    case: Analysis,
    world: model.World,
) -> Iterator[model.Hit]:
    """
    ## What it checks
    Whether all interfaces that NCCL or Gloo will use on a node are loopback, or a bridge for containers or guests
    (docker0, virbr0, cni0, br-..., or a veth that no probe reached), in jobs on several machines. A probe that gets
    through clears the interface. `doctor --nnodes 2`, which knows one node only, is less sure. Loopback that Gloo found
    through the host name is left to NAM005.
    ## Why it matters
    NCCL_SOCKET_IFNAME=^docker0 admits lo; =docker0, or a prefix that happens to match a bridge, does the same. Peers
    then connect to an address of their own machine: "Connection refused", or a hang.
    ## Check by hand
    `ip route get PEER` shows the interface that leads to the other nodes.
    ## When it is harmless
    When an overlay network is bridged under such a name; then the probes get through and nothing is reported.
    """
    host = case.facts(model.HostFacts)
    is_alone = len(net) == 1 and case.roll is None and world.num_nodes > 1
    if not is_alone and len({machine(f, host.get(n)) for n, f in net.items()}) < 2:
        return
    shared = case.of(shared_addresses)
    reached, failed = _probed(case.reach)
    cut_off = {n for n, f in net.items() if not any(i.is_up and any(own_networks(i)) for i in f.interfaces)}
    bad: dict[str, dict[int, Chosen]] = {}
    proven: set[int] = set()
    for item in (item for items in case.of(needed_choices).values() for item in items):
        ends = {(item.node, a) for a in item.choice.addresses}
        loopback = all_loopback(item.choice.addresses)
        by_name = loopback and item.backend == "Gloo" and item.choice.pattern is None and item.node not in cut_off
        if by_name or shared.keys() & set(item.choice.addresses) or (not loopback and ends & reached):
            continue
        fails = bool(ends & failed)
        if loopback or all(is_private(n) or (is_veth(n) and fails) for n in item.choice.interfaces):
            bad.setdefault(item.backend, {})[item.node] = item
            proven |= {item.node} if (loopback and not is_alone) or fails else set()
    for _, found in sorted(bad.items(), reverse=True):
        is_certain = proven.issuperset(found)
        yield choice_hit(
            case,
            found,
            {n: c.text for n, c in found.items()},
            avoid=shared,
            severity=None if is_certain else model.Severity.ERROR,
            confidence=model.Confidence.CERTAIN if is_certain else model.Confidence.LIKELY,
            interfaces=brief(Split.by({n: c.names for n, c in found.items()})),
        )


def _probed(reach: model.Reachability | None) -> tuple[set[tuple[int, str]], set[tuple[int, str]]]:
    """Addresses of nodes that another node connected to, and those where a connection failed."""
    paths = reach.paths if reach else ()
    reached = {(p.dst, p.address) for p in paths if p.outcome in {"ok", "stuck"}}
    return reached, {(p.dst, p.address) for p in paths if p.outcome in {"refused", "filtered", "no_route"}}
