"""SLW004."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Confidence, FaultClass, Hit, Live, Severity, World
from allready.rules.slow._decide import decide
from allready.rules.slow._pace import percent, share_of_looks, usual_site
from allready.rules.slow._say import of_each, ranks_of, waited_for


@Rule(
    code="SLW004",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    since="0.1",
    layer=Layer.PACE,
    title="One rank waits for its data, and all others wait for it",
    message="the others wait for {who} during {share} of the time; it is seen loading data at {loading} of the looks "
    "({site})",
    remedy="make the loader of {who} as fast as the others': number of workers, prefetch_factor, where its shard lies "
    "(`iostat -x 1`, the file system's own counters), its transforms; `py-spy dump --pid PID` shows where it waits",
)
def rank_loading(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and what the late rank's main thread was seen doing meanwhile: waiting
    for its DataLoader.
    ## Why it matters
    Collectives go at the pace of the slowest rank; one slow shard or disk slows the whole job.
    ## Check by hand
    `py-spy dump --pid PID` a few times on the late rank and on another one.
    ## When it is harmless
    When the shards differ by design and the loss is accepted.
    """
    slow = case.of(decide).because("loading")
    if not slow:
        return
    ranks = ranks_of(slow)
    share = {r: share_of_looks(live, r, "loading") or 0.0 for r in ranks}
    yield waited_for(
        live,
        world,
        slow,
        confidence=Confidence.CERTAIN if len(ranks) == 1 else Confidence.LIKELY,
        loading=percent(max(share.values())),
        site=usual_site(live, ranks[0]) or "?",
        own=of_each(slow, "", lambda r: f"loading at {share[r]:.0%} of the looks"),
    )
