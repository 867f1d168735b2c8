"""What the rules about hangs share: a blame of their kind, and hits with who waits for whom in what."""

from collections.abc import Iterator, Sequence
from typing import Any

from allready.judging.analysis import Analysis
from allready.judging.hang import HangBlame, HangKind, blame_hang
from allready.judging.places import num_ranks
from allready.judging.run_signs import onset, who
from allready.judging.stated import stated
from allready.judging.wait_words import call_of, waited_s
from allready.judging.waits import Wait, WaitSnapshot, positions
from allready.model import Culprits, Evidence, Hit, Role, Severity, clock_time
from allready.signatures import load


def blamed(case: Analysis, kind: HangKind) -> tuple[HangBlame, WaitSnapshot, Wait] | None:
    """What explains the hang, with its snapshot and wait, if it is of this kind."""
    found = case.of(blame_hang)
    if found.kind is not kind or found.snapshot is None or found.wait is None:
        return None
    return found, found.snapshot, found.wait


def _outlived(case: Analysis, ranks: Sequence[int]) -> Iterator[Evidence]:
    """Errors that ended none of these ranks: one that is caught may be why a call is left out."""
    signatures = load()
    for event in case.run.events:
        signature = signatures.get(event.signature)
        is_error = signature is not None and signature.role is Role.ROOT and signature.severity is Severity.BLOCKER
        if is_error and event.role is Role.HARMLESS and event.origin.rank in ranks:
            text = "rank {rank} logged this and went on: {line}"
            yield stated(str(event.origin), text, rank=event.origin.rank, line=event.text[:200])


def hit_of(case: Analysis, found: HangBlame, **changes: Any) -> Hit:
    """A hit that accuses the ranks of `found`; `changes`: fields of the hit, `values` are added to the usual ones."""
    run, snapshot, wait = case.run, found.snapshot, found.wait
    assert snapshot is not None
    assert wait is not None
    causes = [e for cause in found.causes[:4] for e in cause.evidence]
    known: dict[str, Any] = {
        "culprits": Culprits(ranks=found.ranks),
        "evidence": (*causes, *positions(snapshot, found.ranks), *_outlived(case, found.ranks))[:10],
        "fault_time": clock_time(onset(run)),
    }
    values = {
        "waiting": num_ranks(wait.waiting),
        "waited": waited_s(case, found) or None,
        "operation": call_of(run, wait),
        "who": who(run, found.ranks),
    }
    values |= changes.pop("values", {})
    return Hit(**(known | changes), values=values)
