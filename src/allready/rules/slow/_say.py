"""The hit of a rule that has found out why the others wait for some ranks."""

from collections.abc import Callable, Iterable, Sequence

from allready.judging.live_status import named
from allready.model import Confidence, Culprits, Evidence, Hit, Live, World
from allready.rules.slow._pace import Slow, percent, told

MAX_TOLD = 4


def waited_for(
    live: Live,
    world: World,
    slow: Sequence[Slow],
    *,
    confidence: Confidence,
    own: Iterable[Evidence] = (),
    **values: str,
) -> Hit:
    """These ranks as culprits.

    Args:
        live, world: as the rule has them.
        slow: not empty, the slowest first.
        confidence: of the reason.
        own: evidence of the reason, before that of the lateness.
        values: of the message and the remedy, besides who, share and late.
    """
    ranks = ranks_of(slow)
    return Hit(
        culprits=Culprits(ranks=ranks),
        values={
            "who": named(live, world, ranks),
            "share": percent(slow[0].share),
            "late": f"{slow[0].late_s * 1000:.1f}",
            **values,
        },
        confidence=confidence,
        evidence=(*own, *told(slow)),
    )


def ranks_of(slow: Sequence[Slow]) -> tuple[int, ...]:
    """In their order."""
    return tuple(sorted(s.rank for s in slow))


def of_each(slow: Sequence[Slow], source: str, text: Callable[[int], str]) -> tuple[Evidence, ...]:
    """One piece of evidence for each of the first ranks.

    Args:
        slow: the ranks.
        source: where it is from, after the rank.
        text: what is seen of a rank.
    """
    return tuple(
        Evidence(source=f"rank {rank}, {source}" if source else f"rank {rank}", text=text(rank))
        for rank in ranks_of(slow)[:MAX_TOLD]
    )
