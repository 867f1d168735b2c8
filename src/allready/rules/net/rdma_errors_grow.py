"""NET026."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, PerNode, RdmaFacts, RdmaPort, RemedyStep, Severity, World

FEWEST = {"symbol_error": 10, "local_link_integrity_errors": 1, "link_downed": 1, "link_error_recovery": 1}
"""Within about half a second.  One wrong bit in 10^12, which InfiniBand allows, gives 0.05 at 100 Gbit/s."""
LONGEST_S = 2.0


@Rule(
    code="NET026",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    since="0.2",
    layer=Layer.MACHINE,
    title="Errors of an InfiniBand link grow",
    message="node {node}: {port} counted {errors} within {watched_s} s: a cable, a transceiver or a port fails",
    remedy=(
        RemedyStep(
            explanation="look at the link's counters and at the state of cable and transceiver",
            where="node {node}",
            command="perfquery -x -C {device} -P {number}; sudo mlxlink -d {device} -m -c",
        ),
        RemedyStep(explanation="reseat or replace the cable, and watch the counters again", where="node {node}"),
    ),
)
def rdma_errors_grow(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The counters of an ACTIVE InfiniBand port, read twice about half a second apart: at least 10 symbol errors, or one
    link that went down, had to be recovered or passed its threshold of local errors meanwhile. Counters that are high
    but no longer grow do not count, nor do those of lost or repeated packets, which also a full network causes.
    ## Why it matters
    Packets are sent again, and all ranks wait for the slowest link; a link that goes down ends the job with an error
    of completion.
    ## Check by hand
    `grep . /sys/class/infiniband/*/ports/*/counters/symbol_error`, twice.
    ## When it is harmless
    While this cable is plugged or the switch restarts.
    """
    for node, facts in rdma.items():
        for port in facts.ports:
            grown = _grown(port)
            if grown and facts.watched_s is not None and facts.watched_s <= LONGEST_S:
                errors = ", ".join(f"{name} +{count}" for name, count in grown.items())
                name = f"{port.device}/{port.port}"
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "port": name,
                        "device": port.device,
                        "number": port.port,
                        "errors": errors,
                        "watched_s": round(facts.watched_s, 1),
                    },
                    evidence=seen(f"/sys/class/infiniband {name}", {node: errors}),
                )


def _grown(port: RdmaPort) -> dict[str, int]:
    if port.state != "ACTIVE" or port.link_layer != "InfiniBand":
        return {}
    return {name: port.growth[name] for name, fewest in FEWEST.items() if port.growth.get(name, 0) >= fewest}
