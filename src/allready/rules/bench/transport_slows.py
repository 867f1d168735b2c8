from collections.abc import Iterator

from allready.judging.isolation import isolated
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import Collectives, Confidence, Culprits, FaultClass, Hit, RemedyStep, Severity
from allready.units import size


@Rule(
    code="BEN007",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    title="The collectives are faster without one of NCCL's transports",
    message="{operation} of {size} is {percent} % faster with {setting}: {transport} slows it",
    remedy=(
        RemedyStep(
            explanation="see which paths and rates NCCL takes it for",
            command="export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET",
        ),
        RemedyStep(
            explanation="until the cause is known, the variable may stay set; note why, and measure again after "
            "each change of driver, NCCL or machine"
        ),
    ),
)
def transport_slows(collectives: Collectives) -> Iterator[Hit]:
    """
    ## What it checks
    The runs of `allready bench --isolate`: the largest size is measured again with P2P, SHM, IB, NVLS, GPUDirect RDMA
    and network plugins switched off in turn.  A transport is named when the bus bandwidth without it is above that of
    the runs that change nothing by 10 %, and by twice what these differ by.
    ## Why it matters
    NCCL chooses by what the machine promises.  PCIe peer-to-peer through a CPU with ACS on, or an adapter far from its
    GPU, is slower than what NCCL would take next.
    ## Check by hand
    nccl-tests with and without the variable, several times each.
    ## When it is harmless
    Where other jobs share the machine: measure again.
    """
    found = isolated(collectives)
    for one in found.slowing() if found is not None else ():
        assert found is not None
        assert one.ratio is not None
        yield Hit(
            confidence=Confidence.LIKELY,
            culprits=Culprits(),
            values={
                "operation": found.point.operation,
                "size": size(found.point.size_bytes),
                "percent": f"{100 * (one.ratio - 1):.0f}",
                "setting": one.setting,
                "transport": one.transport,
            },
            evidence=(
                stated(
                    one.setting,
                    "busbw {rate} GB/s, {usual} GB/s without it, which varies by {noise}",
                    rate=f"{one.ratio * found.busbw_gb_per_s:.4g}",
                    usual=f"{found.busbw_gb_per_s:.4g}",
                    noise=f"{found.noise_share:.0%}",
                ),
            ),
        )
