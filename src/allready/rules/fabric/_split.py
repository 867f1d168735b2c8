"""The hit of a rule that compares what ranks logged."""

from collections.abc import Iterable, Iterator, Mapping

from allready.judging.majority import Split
from allready.judging.run_signs import who
from allready.model import Culprits, Evidence, Hit, RunEvidence, Severity


def ranks_differ(
    run: RunEvidence,
    name: str,
    values: Mapping[int, str],
    *,
    severity: Severity | None = None,
    variables: Iterable[str] = (),
) -> Iterator[Hit]:
    """The ranks with another value of `name` than the most; nothing where all have the same."""
    split = Split.by(values)
    if len(split) > 1:
        usual, odd = split.groups[0][0], split.outliers()
        shown = odd or tuple(r for r, v in values.items() if v != usual)
        yield Hit(
            severity=severity,
            culprits=Culprits(ranks=odd, variables=tuple(variables)),
            values={
                "name": name,
                "who": who(run, shown),
                "odd": ", ".join(sorted({values[r] for r in shown})),
                "usual": usual,
            },
            evidence=rank_evidence(run, {r: f"{name} {values[r]}" for r in (*shown, *list(values)[:1])}, 6),
        )


def rank_evidence(run: RunEvidence, texts: Mapping[int, str], most: int) -> tuple[Evidence, ...]:
    """What the logs of these ranks show, in the order of the logs."""
    shown = [(p, texts[p.rank]) for p in run.processes if p.rank is not None and p.rank in texts]
    return tuple(Evidence(source=", ".join(p.sources[:1]), text=f"rank {p.rank}: {text}") for p, text in shown[:most])
