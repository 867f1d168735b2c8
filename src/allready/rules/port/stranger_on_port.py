from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import MAX_EVIDENCE
from allready.model import FaultClass, Hit, RemedyStep, RollCall, Severity
from allready.model.fill import words_of

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
