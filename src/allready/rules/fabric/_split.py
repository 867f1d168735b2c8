"""The hit of a rule that compares what ranks logged."""

from collections.abc import Iterable, Iterator, Mapping

from allready.judging.majority import Split
from allready.judging.node_split import brief
from allready.judging.run_signs import who
from allready.judging.stated import said, stated
from allready.model import Culprits, Evidence, Hit, Phrase, RunEvidence, Severity
from allready.model.fill import UNKNOWN


def ranks_differ(
    run: RunEvidence,
    name: str,
    values: Mapping[int, str],
    *,
    severity: Severity | None = None,
    variables: Iterable[str] = (),
) -> Iterator[Hit]:
    """The ranks with another value of `name` than the majority; without one all sides, and no rank is accused."""
    split = Split.by(values, num_members=run.expected_ranks)
    if len(split) > 1:
        odd = split.outliers()
        shown = odd or tuple(group[0] for _, group in split.groups)
        yield Hit(
            severity=severity,
            culprits=Culprits(ranks=odd, variables=tuple(variables)),
            values={
                "name": name,
                "who": who(run, odd) if odd else UNKNOWN,
                "odd": tuple(_value(v) for v in sorted({values[r] for r in odd})),
                "usual": _value(split.groups[0][0]),
                "split": UNKNOWN if odd else brief(split),
            },
            evidence=rank_evidence(run, {r: f"{name} {values[r]}" for r in (*shown, *list(values)[:1])}, 6),
        )


NOT_SET = "(not set)"


def _value(value: str) -> Phrase:
    """A value as it was logged, or that there is none."""
    return said("(not set)") if value == NOT_SET else said("{value}", value=value)


def rank_evidence(run: RunEvidence, texts: Mapping[int, str], most: int) -> tuple[Evidence, ...]:
    """What the logs of these ranks show, in the order of the logs."""
    shown = [(p, texts[p.rank]) for p in run.processes if p.rank is not None and p.rank in texts]
    return tuple(
        stated(", ".join(p.sources[:1]), "rank {rank}: {text}", rank=p.rank, text=text) for p, text in shown[:most]
    )
