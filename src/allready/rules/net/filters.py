"""What the filters of interfaces leave to NCCL and Gloo."""

from collections.abc import Iterator

from allready import model
from allready.judging.addresses import is_private
from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import brief
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.model import FaultClass, Hit, NetFacts, PerNode, RemedyStep, Severity, TransportFacts
from allready.model.addresses import all_loopback
from allready.rules.net._interfaces import (
    Chosen,
    choice_hit,
    choices,
    has_nccl_syntax,
    is_veth,
    machine,
    needed_choices,
    own_networks,
    shared_addresses,
)
from allready.text.choices import say_choice


@Rule(
    code="NET010",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.PATH,
    applies=Applies.FACTS,
    title="The interface set for NCCL or Gloo does not exist",
    message="{variable}={values} on node {nodes} matches no interface that is up and has an address[[; available: "
    "{existing}]]",
    remedy=RemedyStep(
        explanation="set an interface that exists", where="node {on}", command="{command}", each="exports"
    ),
)
def ifname_missing(transport: PerNode[TransportFacts], net: PerNode[NetFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, where set, select at least one interface of the node that is up and
    has an address. NCCL takes prefixes, with = exact names, with ^ names to exclude; Gloo takes exact names. For a
    library that this job does not use it is only a warning.
    ## Why it matters
    The library fails at its first use: "no socket interface found" (NCCL), "Unable to find address for" (Gloo); the
    other nodes wait. Interface names often differ between machines.
    ## Check by hand
    `ip -br addr` on the named node, and `ip route get PEER` for the interface that leads to the other nodes.
    ## When it is harmless
    When the variable belongs to a library that the job does not use.
    """
    bad: dict[str, dict[int, Chosen]] = {}
    for item in case.of(choices):
        choice = item.choice
        # Gloo needs every name of the list (NET011: its syntax), NCCL one that fits; its other errors are NET014's.
        if item.backend == "Gloo":
            fails = choice.failure is not None and not has_nccl_syntax(choice)
        else:
            fails = not choice.interfaces
        if choice.pattern and fails:
            bad.setdefault(choice.variable, {})[item.node] = item
    for variable, items in sorted(bad.items()):
        yield choice_hit(
            case,
            items,
            {
                n: said(
                    "{variable}={value}: {why}", variable=variable, value=i.choice.pattern, why=say_choice(i.choice)
                )
                for n, i in items.items()
            },
            severity=None if any(item.needed for item in items.values()) else Severity.WARNING,
            values=brief(Split.by({n: item.choice.pattern for n, item in items.items()})),
            existing=brief(Split.by({n: _usable(net[n]) for n in items if n in net}), most_chars=120) or None,
        )


def _usable(net: NetFacts) -> str:
    """Names worth choosing, or where there are none all names."""
    good = [i.name for i in net.interfaces if i.is_up and not i.is_loopback and i.addresses]
    return ", ".join((good or [i.name for i in net.interfaces])[:8]) or "-"


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


@Rule(
    code="NET011",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.PATH,
    applies=Applies.FACTS,
    title="GLOO_SOCKET_IFNAME uses NCCL's syntax",
    message="GLOO_SOCKET_IFNAME={values} on node {nodes}: ^ and = are NCCL's syntax; Gloo takes the value as an "
    "interface name and finds no such interface",
    remedy=RemedyStep(
        explanation="set the plain interface name, without ^ and =",
        where="node {on}",
        command="{command}",
        each="exports",
    ),
)
def gloo_syntax(transport: PerNode[TransportFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That GLOO_SOCKET_IFNAME does not begin with ^ or =, which only NCCL understands.
    ## Why it matters
    Gloo searches for an interface called "^lo" and fails with "Unable to find address for: ^lo" on every rank, as soon
    as the first Gloo group is created.
    ## Check by hand
    `echo "$GLOO_SOCKET_IFNAME"`; it must be an exact name of `ip -br addr`, or several with commas.
    ## When it is harmless
    When the job creates no Gloo group.
    """
    bad = {
        c.node: c for c in case.of(choices) if c.backend == "Gloo" and c.choice.failure and has_nccl_syntax(c.choice)
    }
    if bad:
        patterns = {n: item.choice.pattern for n, item in bad.items()}
        yield choice_hit(
            case,
            bad,
            {n: f"GLOO_SOCKET_IFNAME={pattern}" for n, pattern in patterns.items()},
            severity=None if any(item.needed for item in bad.values()) else Severity.WARNING,
            values=brief(Split.by(patterns)),
        )


@Rule(
    code="NET014",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    layer=Layer.PATH,
    applies=Applies.FACTS,
    title="NCCL or Gloo finds no usable interface",
    message="{library} finds no usable interface on node {nodes}: {error}",
    remedy=(
        RemedyStep(
            explanation="bring up the interface that leads to the other nodes and give it an address",
            where="node {nodes}",
            command="ip -br addr",
        ),
        RemedyStep(explanation="and set it", where="node {nodes}", command="export {variable}=IFNAME"),
    ),
)
def no_interface(transport: PerNode[TransportFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That NCCL and Gloo find an interface by themselves where none is set for them.
    ## Why it matters
    Without an interface the library fails at its first use, and the other nodes wait for this one.
    ## Check by hand
    `ip -br addr`: is there an interface that is UP and has an address? In a container: does it have a network?
    ## When it is harmless
    On a node that takes no part in collectives.
    """
    bad: dict[str, dict[int, Chosen]] = {}
    for item in case.of(choices):
        choice = item.choice
        nothing = not choice.pattern and (choice.failure or not choice.interfaces)
        other = (
            item.backend == "NCCL" and choice.failure and choice.interfaces
        )  # NCCL_COMM_ID in no subnet of this node
        if item.needed and (nothing or other):
            bad.setdefault(item.backend, {})[item.node] = item
    for _, items in sorted(bad.items(), reverse=True):
        errors = {n: say_choice(item.choice) for n, item in items.items()}
        yield choice_hit(case, items, errors, error=errors[min(items)])
