"""PRT008."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Evidence, FaultClass, Hit, RemedyStep, RollCall, Severity


@Rule(
    code="PRT008",
    severity=Severity.INFO,
    fault_class=FaultClass.HEALTHY,
    since="0.1",
    layer=Layer.READINESS,
    title="Something else called at the master port",
    message="{num} callers at the master port did not speak our protocol: {callers}",
    remedy=RemedyStep(
        explanation="nothing has to be done; if such an address is a node of this job, a training process may "
        "have been started there at the same time: start it after the check",
    ),
)
def stranger_on_port(roll: RollCall) -> Iterator[Hit]:
    """
    ## What it checks
    Who connected to the master port during the roll call without being an allready: a port scanner, a health check, a
    browser, a training process that was already started.
    ## Why it matters
    It does no harm here: nothing of it is believed, and it is never blamed.  But a training job's store on this port
    would get the same visitors, and older versions of torch did not survive every one of them.
    ## Check by hand
    `sudo ss -tnp 'sport = :PORT'` on node 0 while it happens; who is that address?
    ## When it is harmless
    Nearly always.
    """
    strangers = [c for c in roll.callers if c.kind == "stranger"]
    if strangers:
        shown = ", ".join(f"{c.address} ({c.detail})" if c.detail else c.address for c in strangers[:4])
        yield Hit(
            values={"num": len(strangers), "callers": shown + (", …" if len(strangers) > 4 else "")},
            evidence=tuple(
                Evidence(source="master port", node_rank=0, text=f"{c.address}: {c.detail or 'no word'}")
                for c in strangers[:16]
            ),
        )
