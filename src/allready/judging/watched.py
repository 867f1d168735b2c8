"""What `allready run` reported while the ranks lived, beside what the files of the run show."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from allready.judging.arbiter import Change, Rules
from allready.judging.layers import Layer
from allready.model import Finding, Report, Severity

WATCHED = frozenset({Layer.STALL, Layer.PACE})
"""Layers whose findings need repeated samples of ranks."""


def with_live(
    findings: Sequence[Finding], runs: Sequence[Report], rules: Rules
) -> tuple[tuple[Finding, ...], tuple[Change, ...]]:
    """The findings together with what `allready run` saw while the processes lived: states, sockets, counters of GPUs;
    and what gave way, and why.  What files show as well, and what several nodes report, is there once.

    A node that only lost node 0 knows less than any that names a fault, and stays out then.
    """
    live = [f for run in runs for f in run.findings if f.code in rules]
    changes: list[Change] = []
    named = next((v for run in runs if (v := run.verdict) is not None and not _knows_least(v.code, rules)), None)
    if named is not None:
        why = f"a node that lost node 0 knows less than one that reports {named.code}"
        changes += [Change("watched", f.code, "left out", why) for f in live if _knows_least(f.code, rules)]
        live = [f for f in live if not _knows_least(f.code, rules)]
    after, seen, instead = _watched(findings, live, runs, rules)
    in_files = {(f.code, f.culprits) for f in after}
    besides = {(f.code, f.culprits): f for f in reversed(seen) if (f.code, f.culprits) not in in_files}
    return (*after, *besides.values()), (*changes, *instead)


def _knows_least(code: str, rules: Rules) -> bool:
    return code in rules and rules[code].knows_least


def _watched(
    findings: Sequence[Finding], live: Sequence[Finding], runs: Sequence[Report], rules: Rules
) -> tuple[Sequence[Finding], Sequence[Finding], Sequence[Change]]:
    """Files hold one moment, `run` watched the ranks: what it reported of a rank stands for a standstill in the files.

    Its explanation of a wait is an error where the files show that the wait was not over when the job was ended.
    """
    verdicts = [r.verdict for r in runs if r.verdict is not None and r.verdict.code in rules]
    reported = {v.code: v.culprits.ranks for v in verdicts if rules[v.code].layer in WATCHED}
    stalls = [f for f in findings if rules[f.code].layer is Layer.STALL and f.code not in reported]
    gave_way = [(f, by) for f in stalls if (by := _reported_by(f, reported)) is not None]
    known = [f for f, _ in gave_way]
    ranks = {r for f in known for r in f.culprits.ranks}
    changes = [
        Change("watched", f.code, "left out", f"`allready run` watched the ranks and reported {by}")
        for f, by in gave_way
    ]
    seen = []
    for f in live:
        if f.code in reported and f.severity is Severity.WARNING and ranks & set(f.culprits.ranks):
            f = replace(f, severity=Severity.ERROR)
            why = "the files show that the wait was not over when the job was ended"
            changes.append(Change("watched", f.code, f"raised from {Severity.WARNING} to {Severity.ERROR}", why))
        seen.append(f)
    return [f for f in findings if f not in known], seen, changes


def _reported_by(finding: Finding, reported: Mapping[str, Sequence[int]]) -> str | None:
    """The code under which one of the finding's ranks was reported while it lived."""
    return next((code for code, ranks in reported.items() if set(finding.culprits.ranks) & set(ranks)), None)
