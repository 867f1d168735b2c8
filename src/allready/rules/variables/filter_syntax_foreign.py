"""VAR016."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Settings, Severity
from allready.rules.variables._settings import hit, known, remedy
from allready.variables.filters import exact_flaws, ucx_flaws
from allready.variables.table import Type


@Rule(
    code="VAR016",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A list of interface names has marks or blanks that its reader does not know",
    message="{name}={value}: it takes exact names separated by commas, and no interface is called {entry}",
    remedy=remedy("write exact names, without ^, = and blanks: {name}=eth0"),
)
def filter_syntax_foreign(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME: entries with the marks ^ and = of NCCL's filters, with wildcards or blanks,
    or empty; UCX_NET_DEVICES: entries with =, or with ^ behind the first.
    ## Why it matters
    Gloo knows exact names only and ends with "Unable to find address for: ^lo". The same value in NCCL_SOCKET_IFNAME is
    right, which is why it is copied.
    ## Check by hand
    `ip -brief address` lists the names.
    ## When it is harmless
    When the job uses neither Gloo nor RPC; DistributedDataParallel with NCCL alone does not read it.
    """
    for variable, same in known(settings):
        value = same.value
        if not value or len(value) < 2:
            continue
        if variable.type is Type.EXACT_IFNAMES:
            for flaw in exact_flaws(value)[:1]:
                yield hit(same, entry=repr(flaw.entry))
        elif variable.type is Type.UCX_DEVICES:
            for flaw in ucx_flaws(value)[:1]:
                yield hit(same, entry=repr(flaw.entry))
