from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.model import FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.link._paths import broken_path, path_hit


@Rule(
    code="LNK001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.LINK,
    applies=Applies.CONNECTIONS,
    title="A node is cut off from the others while the job runs",
    message="{who} {who:is/are} cut off from the network, or down: {who:it has/they have} acknowledged nothing that "
    "the other nodes sent for "
    "{for_s} s ({num} connections, {backoff} retransmission timeouts in a row)",
    remedy=(
        RemedyStep(
            explanation="check link, kernel log and firewall from its console, and its switch port",
            where="{who}",
            command="ip -s link; dmesg -T | grep -i -E 'link|eth|mlx5|panic'; nft list ruleset",
        ),
        RemedyStep(
            explanation="check whether it answers, and whether only large packets are lost",
            where="node {node}",
            command="ping -c 3 {address}; ping -c 3 -M do -s 1472 {address}",
        ),
    ),
)
def node_cut_off(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Both ends of the ranks' TCP connections: data that was sent several times and never acknowledged, on every path to
    one node; and whether that node's agent still sends heartbeats. Idle connections do not count.
    ## Why it matters
    A cable, a switch port or a firewall that drops packets resets nothing: TCP retries for a quarter of an hour, the
    collective's own timeout is ten minutes or more.
    ## Check by hand
    `ss -tino dst NODE` on another node: `backoff:` above 1 and `unacked:` above 0; `ping NODE`.
    ## When it is harmless
    When the node is only paused for a moment (a virtual machine that is migrated): the job continues when it answers
    again.
    """
    found = broken_path(case, "cut off")
    if found is not None:
        backoff = max((s.row.backoff for s in found.stuck), default=0)
        yield path_hit(live, found, num=len(found.stuck), backoff=backoff)
