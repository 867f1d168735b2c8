from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import HOSTS, PROCESSES, Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import blame, rank_hit, ranks_of
from allready.rules.slow._pace import percents, share_in, usual_site


@Rule(
    code="SLW004",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="One rank waits for its data, and all others wait for it",
    message="{who} {who:is/are} in data loading in {loading} of samples[[ ({site})]]; the others wait for "
    "{who:it/them} {share} of the time",
    remedy=(
        RemedyStep(
            explanation="see where the loader waits", each=PROCESSES, where="{on}", command="py-spy dump --pid {pid}"
        ),
        RemedyStep(
            explanation="make it as fast as the others': number of workers, prefetch_factor, the disk or shard it "
            "reads, its transforms",
            each=HOSTS,
            where="{on}",
            command="iostat -x 1 5",
        ),
    ),
)
def rank_loading(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and whether the late rank's main thread was waiting for its DataLoader
    meanwhile.
    ## Why it matters
    Collectives run at the pace of the slowest rank; one slow shard or disk slows the whole job.
    ## Check by hand
    `py-spy dump --pid PID` a few times on the late rank and on another one.
    ## When it is harmless
    When the shards differ by design and the loss is accepted.
    """
    slow = case.of(blame).because("loading")
    if slow:
        share = {r: share_in(live, r, "loading") or 0.0 for r in ranks_of(slow)}
        yield rank_hit(
            case,
            slow,
            Confidence.CERTAIN if len(share) == 1 else Confidence.LIKELY,
            form="in data loading in {share} of samples",
            shares=share,
            loading=percents(share.values()),
            site=usual_site(live, share),
        )
