"""VAR019."""

from collections.abc import Iterator

from allready.judging.addresses import is_private
from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Interface, NetFacts, PerNode, Settings, Severity
from allready.rules.variables._settings import hit, known, remedy, this
from allready.variables.filters import MAX_INTERFACES, flaws, parse
from allready.variables.meaning import in_order
from allready.variables.table import Type


@Rule(
    code="VAR019",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A filter leads NCCL to an interface that ends in this machine",
    message="{name}={value} makes {first} the first interface of NCCL here; other nodes cannot reach it",
    remedy=remedy("select {better} instead, for example {name}={better}"),
)
def filter_selects_loopback(settings: Settings, net: PerNode[NetFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the first interface that NCCL_SOCKET_IFNAME selects here is the loopback or a bridge for containers,
    although another one has an address. A list of what to leave out (^docker0) takes the place of the default, which
    leaves out lo and docker*.
    ## Why it matters
    NCCL gives the address of its first interface to the other nodes, which then connect to themselves: the job hangs
    at start, or ends with "Connection refused".
    ## Check by hand
    `allready env explain NCCL_SOCKET_IFNAME --value VALUE`.
    ## When it is harmless
    When the job runs on one node.
    """
    interfaces = this(net)
    usable = [i for i in interfaces.interfaces if i.addresses and i.is_up] if interfaces else []
    better = next((i.name for i in usable if not _ends_here(i)), None)
    if better is None or settings.is_cluster is False:
        return
    for variable, same in known(settings, here=True):
        value = same.value
        if variable.type is not Type.IFNAMES or not value or len(value) < 2 or flaws(value):
            continue
        chosen = parse(value, most=MAX_INTERFACES)
        first = next((i for i in in_order(usable) if chosen.selects(i.name)), None)
        # Naming lo is right on one node: it is a mistake only where there are several.
        if first is not None and _ends_here(first) and (chosen.exclude or settings.is_cluster):
            yield hit(same, confidence=same.sureness, first=first.name, better=better, command=same.export(better))


def _ends_here(interface: Interface) -> bool:
    return interface.is_loopback or is_private(interface.name)
