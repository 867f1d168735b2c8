from collections.abc import Iterator

from allready.judging.isolation import isolated
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of
from allready.model import Collectives, Confidence, FaultClass, Hit, Severity
from allready.units import size


@Rule(
    code="BEN008",
    severity=Severity.INFO,
    fault_class=FaultClass.HEALTHY,
    layer=Layer.PACE,
    title="Which of NCCL's transports matter",
    message="{operation} of {size}, busbw {busbw} GB/s: slower without: {carrying}; no difference without: "
    "{same}; fails without: {failing}",
    remedy="keep the transports it is slower without: a variable that switches one off costs that much",
)
def transports_compared(collectives: Collectives) -> Iterator[Hit]:
    """
    ## What it checks
    The runs of `allready bench --isolate`, each with one variable set, beside runs that change nothing.  Within 10 %,
    or twice what the latter differ by, a variable makes no difference.
    ## Why it matters
    It says over what the data go: without P2P a node with NVLink falls to a fraction, without IB a cluster falls to
    sockets.  Where nothing makes a difference, NCCL uses none of these transports, or the next one is as fast.
    ## Check by hand
    nccl-tests with each variable set alone, and `NCCL_DEBUG=INFO`.
    ## When it is harmless
    Always; it is information.
    """
    found = isolated(collectives)
    if found is None:
        return
    yield Hit(
        confidence=Confidence.LIKELY,
        values={
            "operation": found.point.operation,
            "size": size(found.point.size_bytes),
            "busbw": f"{found.busbw_gb_per_s:.4g}",
            "carrying": ", ".join(w.transport for w in found.carrying()) or "-",
            "same": ", ".join(w.transport for w in found.indifferent()) or "-",
            "failing": ", ".join(w.transport for w in found.failing()) or "-",
        },
        evidence=tuple(
            evidence_of(
                w.setting, w.detail if w.ratio is None else f"{w.ratio * found.busbw_gb_per_s:.4g} GB/s, {w.ratio:.0%}"
            )
            for w in found.tried
        ),
    )
