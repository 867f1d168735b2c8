from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import brief
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.model import FaultClass, Hit, NetFacts, PerNode, RemedyStep, Severity, TransportFacts
from allready.rules.net._interfaces import Chosen, choice_hit, choices, has_nccl_syntax
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
            existing=brief(Split.by({n: _usable(net[n]) for n in items if n in net}), most_chars=120) or "?",
        )


def _usable(net: NetFacts) -> str:
    """Names worth choosing, or where there are none all names."""
    good = [i.name for i in net.interfaces if i.is_up and not i.is_loopback and i.addresses]
    return ", ".join((good or [i.name for i in net.interfaces])[:8]) or "-"
