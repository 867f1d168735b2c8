"""LIM007."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, PerNode, RemedyStep, Severity, UsageFacts, World

HIGH_SHARE, FULL_SHARE = 0.8, 0.98


@Rule(
    code="LIM007",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="The table of tracked connections is nearly full",
    message="node {node}: the packet filter tracks {count} connections of {most} at most, and then drops new ones",
    remedy=(
        RemedyStep(
            explanation="raise the limit, as root",
            where="node {node}",
            command="sysctl -w net.netfilter.nf_conntrack_max={wanted}",
        ),
        RemedyStep(
            explanation="and see which peers take the places",
            where="node {node}",
            command="conntrack -L 2>/dev/null | grep -o 'src=[^ ]*' | sort | uniq -c | sort -n | tail",
        ),
    ),
)
def tracking_full(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    `nf_conntrack_count` against `nf_conntrack_max` of this network namespace: a warning from 80 %, an error from 98
    %.
    ## Why it matters
    At the limit the kernel drops the first packet of every new connection without an answer ("nf_conntrack: table
    full, dropping packet" in the kernel log). A job starts or reconnects slowly, or some pairs of ranks never
    connect, while connections that exist work on.
    ## Check by hand
    `sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max`; `dmesg | grep conntrack`.
    ## When it is harmless
    When the node opens no further connections.
    """
    for node, facts in usage.items():
        if facts.num_tracked is None or not facts.max_tracked:
            continue
        share = facts.num_tracked / facts.max_tracked
        if share >= HIGH_SHARE:
            yield Hit(
                severity=Severity.ERROR if share >= FULL_SHARE else None,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "count": facts.num_tracked,
                    "most": facts.max_tracked,
                    "wanted": 4 * facts.max_tracked,
                },
                evidence=seen(
                    "nf_conntrack", {node: said("{used} of {limit}", used=facts.num_tracked, limit=facts.max_tracked)}
                ),
            )
