from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import who
from allready.judging.signs import Sign
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, FaultClass, Hit, Lag, RemedyStep, RunEvidence, Severity

ALWAYS = 0.8
"""Share of operations that a rank must enter last to be the slow one; imbalance that rotates gives each about 1/n."""

NOISES = 3.0
"""Its lateness must exceed what clocks and scheduling can feign by this factor, to be sure."""

BARELY, NEARLY_ALL, MANY = 1.25, 0.95, 30
"""So much more than what clocks leave open, in so large a share of so many operations, is likely enough: what they
leave open is the most that they can be apart, not what they are."""

MIN_S = 0.005
MIN_SHARE_OF_PERIOD = 0.05
"""Less than this share of the time from one operation to the next is not worth an error."""


@Rule(
    code="SLW001",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END, Sign.WAIT),
    title="One rank enters nearly every operation last, and all others wait for it",
    message="{who} entered {share} of {num} operations last, {late} s late at the median: the others wait for its "
    "computation",
    remedy=(
        RemedyStep(
            explanation="check CPU quota and GPU clocks",
            where="the node of {who}",
            command="cat /sys/fs/cgroup/cpu.stat; nvidia-smi -q -d CLOCK,PERFORMANCE",
        ),
        RemedyStep(
            explanation="then profile {who}: its data loader, the neighbours on its CPUs, its share of the work"
        ),
    ),
)
def always_last(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation (creation times in flight-recorder dumps, times of NCCL's COLL lines,
    durations in Inspector files and event logs of the runtime library), after the clocks of the ranks were aligned by
    operations that completed together.
    ## Why it matters
    Collectives run at the pace of the slowest rank; every other rank looks busy in communication and only waits.
    ## Check by hand
    Compare creation times of the same operation in all dumps.
    ## When it is harmless
    When the rank has more work by design (logging, a longer sequence) and the loss is accepted.
    """
    named: set[int] = set()
    for lag in sorted(run.lags, key=lambda g: -g.num_operations):
        for rank, is_sure in _slow(lag).items():
            if rank in named:
                continue
            named.add(rank)
            yield Hit(
                culprits=Culprits(ranks=(rank,)),
                values={
                    "who": who(run, [rank]),
                    "share": f"{lag.last_share[rank]:.0%}",
                    "num": lag.num_operations,
                    "late": f"{lag.median_late_s[rank]:.3f}",
                },
                confidence=Confidence.CERTAIN if is_sure and lag.last_share[rank] >= 0.9 else Confidence.LIKELY,
                evidence=tuple(
                    stated(
                        lag.source,
                        "rank {rank}: median lateness {late} s, last in {share}",
                        rank=r,
                        late=f"{late:.4f}",
                        share=f"{lag.last_share.get(r, 0):.0%}",
                    )
                    for r, late in sorted(lag.median_late_s.items(), key=lambda item: -item[1])[:6]
                ),
            )


def _slow(lag: Lag) -> dict[int, bool]:
    """The slow ranks, and whether their lateness leaves no doubt."""
    if lag.num_operations < 10 or len(lag.median_late_s) < 2:
        return {}
    least = max(MIN_S, MIN_SHARE_OF_PERIOD * (lag.median_period_s or 0.0))
    found = {}
    for rank, late in lag.median_late_s.items():
        share = lag.last_share.get(rank, 0.0)
        is_sure = late > NOISES * lag.noise_s
        is_likely = late > BARELY * lag.noise_s and share >= NEARLY_ALL and lag.num_operations >= MANY
        if late > least and share >= ALWAYS and (is_sure or is_likely):
            found[rank] = is_sure
    return found
