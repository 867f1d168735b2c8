"""Conditions and values that one signature alone needs, as Python beside the tables.

Keyed by the signature's id; `tests/signatures/test_conditions.py` makes sure that each id exists.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from allready.model import Event, FaultClass, Severity
from allready.patterns import compiled
from allready.signatures.case import Case, EventsById

MAX_LOOKUPS = 8
"""The ranks of one node, whose lines do not show who wrote them, look a name up once each."""
MAX_PAUSE_S = 30.0
"""A pause of the storage; what waits longer runs into the timeouts of collectives."""
MAX_LINES_TO_SCHEDULED = 5
"""Further down in `kubectl describe` of several pods it is about another pod."""

_ABOUT_ONE_POD = r"^(?!.*\bpods?/).*0/\d{1,9} nodes are available"
"""`kubectl get events` has a column with the pod: there another one may have been scheduled."""


def _is_one_lookup_each(events: Sequence[Event], _: EventsById) -> bool:
    """A name without an IPv6 address mostly has an IPv4 one; where it has none, torch tries again and again."""
    return all("IPv6 network" in e.text and e.count <= MAX_LOOKUPS for e in events)


def _is_short_pause(events: Sequence[Event], run: EventsById) -> bool:
    answers = run.get("kernel.storage_answers", ())
    is_trying = all("not responding, still trying" in e.text for e in events)
    return is_trying and all(_is_over(e, _below(e, answers), within_s=MAX_PAUSE_S) for e in events)


def _is_scheduled_later(events: Sequence[Event], run: EventsById) -> bool:
    scheduled = run.get("launcher.kubernetes_scheduled", ())
    return all(
        compiled(_ABOUT_ONE_POD).search(e.text) is not None
        and _is_over(e, [s for s in _below(e, scheduled) if _lines_between(e, s) <= MAX_LINES_TO_SCHEDULED])
        for e in events
    )


def _is_one_operation(events: Sequence[Event], _: EventsById) -> bool:
    """The same operation under the same number on both ranks: then it is its arguments that differ."""
    pairs = (("op_a", "op_b"), ("seq_a", "seq_b"))
    return all("op_a" in e.values and all(e.values.get(a) == e.values.get(b) for a, b in pairs) for e in events)


def _is_one_on_the_way(events: Sequence[Event], run: EventsById) -> bool:
    """Some process tried to reach the store all the time: it was there, and the way to the store is what failed."""
    written = {event.origin for event in events}
    return any(event.origin not in written for event in run.get("store.connect_timeout", ()))


def _has_lost_the_store(events: Sequence[Event], run: EventsById) -> bool:
    """The connection that failed had been made before: the store's process ended first, as it does at a job's end."""
    lost = run.get("store.connection_lost", ())
    return all(any(_lines_between(one, e) > 0 and one.origin.source == e.origin.source for one in lost) for e in events)


CASES: Mapping[str, tuple[Callable[[Sequence[Event], EventsById], bool], Case]] = {
    "store.waiting_for_clients": (_is_one_on_the_way, Case(severity=Severity.WARNING)),
    "elastic.rendezvous_connection": (_has_lost_the_store, Case(severity=Severity.WARNING)),
    "store.name_unknown": (_is_one_lookup_each, Case(severity=Severity.WARNING)),
    "kernel.storage_stalled": (_is_short_pause, Case(severity=Severity.WARNING)),
    "launcher.kubernetes_not_started": (_is_scheduled_later, Case(severity=Severity.WARNING)),
    "torch.fingerprint_mismatch": (_is_one_operation, Case(fault_class=FaultClass.DESYNC_ARGS)),
}
"""Signature -> a condition on all its lines, and what the finding is where it holds."""


def _below(event: Event, others: Iterable[Event]) -> list[Event]:
    """Those of `others` that stand below the first line of `event` in the same file; a group of one name that both have
    caught the same."""
    return [
        other
        for other in others
        if (other.origin.source, other.origin.host) == (event.origin.source, event.origin.host)
        and _lines_between(event, other) > 0
        and all(other.values[name] == event.values[name] for name in other.values.keys() & event.values.keys())
    ]


def _lines_between(event: Event, other: Event) -> int:
    return (other.origin.line or 0) - (event.origin.line or 0)


def _is_over(event: Event, ends: Sequence[Event], *, within_s: float = math.inf) -> bool:
    """Whether one of `ends` is below the last line of `event`, and at most `within_s` after its first.

    Equal lines are one event that keeps the place of the first.  So the last is known by its time; without times there
    have to be as many ends below as there were lines, and how long it took is not known.
    """
    if event.time_s is None or any(end.time_s is None for end in ends):
        return within_s == math.inf and sum(end.count for end in ends) >= event.count
    last = max((end.last_time_s or end.time_s or 0.0 for end in ends), default=-math.inf)
    return last >= (event.last_time_s or event.time_s) and last - event.time_s <= within_s


def _odd_of_pairs(events: Sequence[Event]) -> set[int]:
    """The one rank that all pairs of differing ranks have in common, if there are two pairs or more."""
    pairs: set[frozenset[int]] = set()
    for event in events:
        a, b = event.values.get("rank_a", ""), event.values.get("rank_b", "")
        if not (a.isdecimal() and b.isdecimal()) or event.origin.rank not in {int(a), int(b)}:
            continue  # not the ranks of the job: a smaller group counts for itself
        pairs.add(frozenset((int(a), int(b))))
    common = frozenset.intersection(*pairs) if pairs else frozenset()
    return set(common) if len(pairs) > 1 and len(common) == 1 else set()


CULPRITS: Mapping[str, Callable[[Sequence[Event]], set[int]]] = {
    "torch.ddp_model_differs": _odd_of_pairs,
    "torch.fingerprint_mismatch": _odd_of_pairs,
    "jax.leader_silent": lambda _: {0},
}
"""Signature -> the ranks at fault, found from all its lines together; its `culprit` is "none"."""


_HINTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "launcher.slurm_launch_failed": (
        ("[Cc]redential", "date; chronyc tracking; munge -n | ssh NODE unmunge"),
        ("[Mm]emory", "scontrol show node NODE | grep -i mem"),
        ("execve", "srun -w NODE which PROGRAM"),
        (
            "[Cc]ommunication|[Cc]onnection|[Cc]ontact|timed out|route|unreachable",
            "scontrol ping; ssh NODE systemctl status slurmd",
        ),
        ("[Aa]ccount|QOS|association", "sacctmgr show assoc user=$USER"),
        ("", "scontrol show partition; sinfo -o '%P %c %m %G %l'"),
    )
}
"""Signature -> pairs of an expression and a command: the first that fits the line fills `{hint}` in the remedy."""


def hint_of(signature_id: str, text: str) -> dict[str, str]:
    """The command that fits a line with these words, as the value `hint`; empty where the signature has none."""
    hints = _HINTS.get(signature_id, ())
    found = next((command for source, command in hints if compiled(source).search(text)), None)
    return {} if found is None else {"hint": found}


IDS = {*CASES, *CULPRITS, *_HINTS}
