"""What `allready run` said while the ranks lived, beside what the files of the run show."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from allready.judging.arbiter import in_order
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Finding, Report, Severity

WATCHED = frozenset({Layer.STALL, Layer.PACE})
"""Layers whose findings need repeated samples of ranks."""
NODE_0_LOST = "JOB010"


def with_live(findings: Sequence[Finding], runs: Sequence[Report], rules: Mapping[str, Rule]) -> tuple[Finding, ...]:
    """The findings together with what `allready run` saw while the processes lived: states, sockets, counters of GPUs.

    A node that only lost node 0 knows less than any node that names a fault, and stays out then.
    """
    live = [f for run in runs for f in run.findings]
    if any(run.verdict is not None and run.verdict.code != NODE_0_LOST for run in runs):
        live = [f for f in live if f.code != NODE_0_LOST]
    after, seen = _watched(findings, live, runs, rules)
    known = {(f.code, f.culprits): f for f in (*reversed(seen), *after) if f.code in rules}
    return in_order(known.values(), rules)


def _watched(
    findings: Sequence[Finding], live: Sequence[Finding], runs: Sequence[Report], rules: Mapping[str, Rule]
) -> tuple[Sequence[Finding], Sequence[Finding]]:
    """Files hold one moment, `run` watched the ranks: what it reported of a rank stands for a standstill in the files.

    Its explanation of a wait is an error where the files show that the wait was not over when the job was ended.
    """
    verdicts = [r.verdict for r in runs if r.verdict is not None and r.verdict.code in rules]
    said = {v.code: v.culprits.ranks for v in verdicts if rules[v.code].layer in WATCHED}
    stalls = [f for f in findings if rules[f.code].layer is Layer.STALL and f.code not in said]
    known = [f for f in stalls if any(set(f.culprits.ranks) & set(ranks) for ranks in said.values())]
    ranks = {r for f in known for r in f.culprits.ranks}
    return [f for f in findings if f not in known], [
        replace(f, severity=Severity.ERROR)
        if f.code in said and f.severity is Severity.WARNING and ranks & set(f.culprits.ranks)
        else f
        for f in live
    ]
