"""What a mismatch between ranks means: another flow of calls, or other arguments in the same call."""

from collections.abc import Mapping
from typing import Any

from allready.judging.run_signs import who
from allready.judging.stated import stated
from allready.model import Culprits, Evidence, Hit, Live, Mismatch, Operation, Recorder, RunEvidence, clock_time, ranges

UNMET = "peer"
"""A send without its receive, or a receive without its send: nothing differs, a rank did not come."""

RECORD_S = 2.5
"""What recorders get to say what the calls are, where only their digests are known to differ."""
FLAG_ELEMENTS = 16
TENSOR_ELEMENTS = 4096
"""At most so many numbers are a flag, at least so many are gradients, weights or activations."""

_WITH_ROOT = {
    "broadcast": "root",
    "reduce": "root",
    "gather": "root",
    "scatter": "root",
    "send": "peer",
    "recv": "peer",
}


def is_flow(mismatch: Mismatch) -> bool:
    """Some rank made a call more or less, or another call; not the same call with other arguments."""
    if mismatch.shift or mismatch.out_of_turn:
        return True
    if mismatch.kind == "name":
        return True
    if mismatch.misfits or mismatch.is_same_call:
        return False
    if mismatch.kind == "size" and _has_flag(mismatch):
        return True
    sites = {o.site for o in mismatch.by_rank.values() if o.site}
    return len(sites) > 1 and all(o.site for o in mismatch.by_rank.values())


def _has_flag(mismatch: Mismatch) -> bool:
    """Whether a flag, a counter or a barrier met a tensor: no tensor is a few numbers here and thousands there."""
    sizes = [o.num_elements for o in mismatch.by_rank.values()]
    known = [size for size in sizes if size is not None]
    return len(known) == len(sizes) > 1 and min(known) <= FLAG_ELEMENTS and max(known) >= TENSOR_ELEMENTS


def described(operation: Operation) -> str:
    """`all_reduce [1048576] float32 at train.py:33`, as far as known."""
    parts = [operation.name or "operation"]
    if operation.sizes:
        parts.append(
            str([list(s) for s in operation.sizes]) if len(operation.sizes) > 1 else str(list(operation.sizes[0]))
        )
    elif operation.num_elements is not None:
        parts.append(f"[{operation.num_elements}]")
    if operation.dtype:
        parts.append(operation.dtype)
    if operation.redop:
        parts.append(operation.redop)
    if operation.root is not None and operation.name in (*_WITH_ROOT, ""):
        parts.append(f"{_WITH_ROOT.get(operation.name, 'root/peer')} {operation.root}")
    return " ".join(parts) + (f" ({operation.site})" if operation.site else "")


def calls_text(operations: Mapping[int, Operation], ranks: tuple[int, ...]) -> str | None:
    """What these ranks did, each different thing once; one whose line is not known may be that of another line."""
    texts = dict.fromkeys(described(operations[r]) for r in ranks if r in operations)
    return "; ".join(text for text in texts if not any(other.startswith(f"{text} (") for other in texts)) or None


def alike(operations: Mapping[int, Operation]) -> tuple[int, ...]:
    """The first rank, and those that did the same."""
    first = described(next(iter(operations.values())))
    same = tuple(r for r, o in operations.items() if described(o) == first)
    return same if len(same) < len(operations) else same[:1]


def source_of(mismatch: Mismatch, rank: int) -> str:
    """Where this rank's operation is recorded."""
    return str(mismatch.origins.get(rank) or mismatch.source)


def evidence_of(mismatch: Mismatch) -> tuple[Evidence, ...]:
    """One line per different operation, the odd ranks first; and who is out of order, where that accuses no rank."""
    order = sorted(mismatch.by_rank, key=lambda r: (r not in mismatch.odd, r))
    found: dict[str, Evidence] = {}
    for rank in order:
        text = described(mismatch.by_rank[rank])
        found.setdefault(text, Evidence(source=source_of(mismatch, rank), text=f"rank {rank}, #{mismatch.seq}: {text}"))
    late = stated(
        mismatch.source,
        "rank {ranks}: called out of order, by the loop so far or by the groups of the same kind",
        ranks=ranges(mismatch.out_of_turn),
    )
    return (*tuple(found.values())[:6], *([late] if mismatch.out_of_turn and not mismatch.odd else []))


def hit_of(run: RunEvidence, mismatch: Mismatch, **changes: Any) -> Hit:
    """A hit that accuses the odd ranks; `changes`: fields of the hit, `values` are added to where and who it was.

    Only a majority is "the others"; without one, ranks are named by their numbers: there may be more of whom no
    call is known.
    """
    odd = mismatch.odd or alike(mismatch.by_rank)
    others = tuple(r for r in mismatch.by_rank if r not in odd)
    created = (o.created_s for o in mismatch.by_rank.values() if o.created_s is not None)
    known: dict[str, Any] = {
        "culprits": Culprits(ranks=mismatch.odd),
        "evidence": evidence_of(mismatch),
        "fault_time": clock_time(min(created, default=None)),
    }
    values: dict[str, object] = {
        "seq": mismatch.seq,
        "group": mismatch.label or mismatch.group,
        "who": who(run, odd),
        "odd": calls_text(mismatch.by_rank, odd),
        "usual": calls_text(mismatch.by_rank, others) if mismatch.odd else None,
        "rest": None if mismatch.odd else who(run, others, with_processes=False),
        "of_rest": None if mismatch.odd else calls_text(mismatch.by_rank, others),
    }
    values |= changes.pop("values", {})
    return Hit(**(known | changes), values=values)


def first_mismatches(run: RunEvidence, live: Live | None = None, *, flow: bool) -> list[Mismatch]:
    """Of each group the first mismatch (recorders know call sites, so they are asked first), of one kind; no UNMET.

    Of a running job none of which only digests are known so far: in a moment its recorders tell what it is.  Nor any
    whose lines are on their way, nor other arguments while the line of some rank's call is not known: it may turn out
    to be another call.
    """
    is_early = live is not None and live.since_s is not None and live.now_s - live.since_s < RECORD_S
    found: dict[tuple[str, int], Mismatch] = {}
    order = {Recorder.FLIGHT: 0, Recorder.COLL_LOG: 1}  # of digests only that they differ is known
    met = (m for m in run.mismatches if m.kind != UNMET)
    for mismatch in sorted(met, key=lambda m: (2 if m.is_by_digest else order.get(m.source, 3), m.seq)):
        # Names of groups differ between sources: a communicator's hash here, a number there.  Same ranks, same group.
        key = (",".join(map(str, sorted({*mismatch.by_rank, *mismatch.missing}))), 0)
        found.setdefault(key, mismatch)
    chosen = [m for m in found.values() if is_flow(m) == flow]
    if live is None or not is_early:
        return chosen
    return [m for m in chosen if not (m.is_by_digest or awaits_lines(m, live) or (not flow and _lacks_a_line(m)))]


def awaits_lines(mismatch: Mismatch, live: Live) -> bool:
    """Whether the recorders can still tell from which lines of the program these calls came: only dumps, which cost
    more than rings and are not asked for at first, have them."""
    has_dump = any(r.dump for answer in live.evidence.values() for r in answer.ranks if r.rank in mismatch.by_rank)
    is_recorded = mismatch.source == Recorder.FLIGHT and not mismatch.is_by_digest
    return is_recorded and not has_dump and not all(o.site for o in mismatch.by_rank.values())


def _lacks_a_line(mismatch: Mismatch) -> bool:
    """Of some calls the recorders have reported the line of the program, of others not."""
    return len({bool(o.site) for o in mismatch.by_rank.values()}) > 1
