from collections.abc import Iterator

from allready import model
from allready.judging.live_status import named
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated


@Rule(
    code="LIV013",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="A node's agent exited while its ranks ran",
    message="the agent of node {who} ended after {since}, while {ranks} ran there ({why})",
    remedy=model.RemedyStep(
        explanation="find what terminated the agent: the OOM killer, kill -9, an eviction by the scheduler, a shutdown "
        "of the machine; the ranks of a node end with its agent",
        where="node {who}",
        command="dmesg -T | grep -i -E 'killed process|oom' | tail -n 5; uptime; journalctl --since '10 min ago' | "
        "tail -n 50",
    ),
)
def node_gone(live: model.Live, world: model.World) -> Iterator[model.Hit]:
    """
    ## What it checks
    The connection of each node's agent to node 0.  A host that closes it answers, so the network works and the agent's
    process is what ended.  A node that falls silent is another finding (LNK001), and one that closes it after node 0's
    own agent did not run for 10 s is not accused: it has given node 0 up.
    ## Why it matters
    The ranks of that node end with their agent.  The other nodes' ranks then report lost connections, which is an
    effect.
    ## Check by hand
    On that node `pgrep -af allready`, `dmesg -T | grep -i -E 'killed process|oom'`, `uptime`.
    ## When it is harmless
    When the node was taken out on purpose and the job goes on without it (`--nnodes MIN:MAX`).
    """
    for node, loss in sorted(live.lost.items()):
        status = live.statuses.get(node)
        if loss.is_silent or status is None or loss.pause_s is not None:
            continue
        spoke_s = live.now_s - live.heard_s.get(node, 0.0)
        running = [r.rank for r in status.ranks if not r.is_gone]
        if not running or _has_failed_before(live, spoke_s):
            continue
        yield model.Hit(
            culprits=model.Culprits(nodes=(node,)),
            confidence=model.Confidence.LIKELY,
            values={
                "who": world.label(node),
                "since": model.wall_clock(spoke_s),
                "why": loss.phrase,
                "ranks": named(live, world, running),
            },
            evidence=(
                stated(
                    "agents",
                    "node {node}: last message {seconds} s ago; {loss}",
                    node_rank=node,
                    node=node,
                    seconds=f"{live.heard_s.get(node, 0.0):.1f}",
                    loss=loss.phrase,
                ),
            ),
            fault_time=model.clock_time(spoke_s),
        )


def _has_failed_before(live: model.Live, time_s: float) -> bool:
    """Whether a rank of any node ended badly before: then the agent's end is not the first fault."""
    return any(
        rank.ended_s is not None
        and (rank.exit_code != 0 or rank.signal is not None)
        and status.by_node_0(rank.ended_s) < time_s
        for status in live.statuses.values()
        for rank in status.ranks
    )
