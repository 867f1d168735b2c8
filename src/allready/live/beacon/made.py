"""How many collectives a rank made in each of its groups, from its rings at the end of its script.

A number is given only where all ranks of the group would count alike: what a healthy job's ranks count differently is
left out.
"""

from allready.live.beacon.group import GroupCounters
from allready.names import GLOO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Entry = Mapping[str, object]

_BETWEEN_TWO = ("send", "recv", "coalesced")
"""Calls that not all members make."""


def made_in(rings: "Iterable[tuple[str, Sequence[Entry]]]") -> "dict[str, GroupCounters]":
    """Group -> its collectives.

    NCCL's sequence numbers also move with batches of sends and receives, of which each stage of a pipeline makes its
    own number: there the entries count, as long as the ring holds the first of them.  Gloo's recorder has no sends, so
    that its numbers count however much was overwritten.

    Args:
        rings: the backends and their entries, oldest first; those of the GPUs before Gloo's.
    """
    found: dict[str, GroupCounters] = {}
    before: set[str] = set()
    is_before_whole = True
    for backend, entries in rings:
        is_whole = not entries or entries[0].get("record_id") == 0
        for name, group in _groups_in(entries, is_numbered=backend == GLOO).items():
            # A group with a backend for each kind of device; one whose entries are gone may be one, too.
            group.name = f"{name}:cpu" if name in before or not is_before_whole else name
            if is_whole or backend == GLOO:
                found[group.name] = group
            before.add(name)
        is_before_whole &= is_whole
    return found


def _groups_in(entries: "Sequence[Entry]", *, is_numbered: bool) -> "dict[str, GroupCounters]":
    """Without names that were used again: after `destroy_process_group` another group of other ranks may have it."""
    found: dict[str, GroupCounters] = {}
    number_of: dict[str, object] = {}
    again: set[str] = set()
    for entry in entries:
        pair, seq = entry.get("process_group"), entry.get("collective_seq_id")
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(seq, int)):
            continue
        name, label = map(str, pair)
        if number_of.setdefault(name, entry.get("pg_id")) != entry.get("pg_id"):
            again.add(name)
        kind = str(entry.get("profiling_name")).partition(":")[2]
        if entry.get("is_p2p") or kind.startswith(_BETWEEN_TWO):
            continue
        group = found.setdefault(name, GroupCounters(name))
        group.label = "" if label == "undefined" else label
        group.enqueued = seq if is_numbered else group.enqueued + 1
    return {name: group for name, group in found.items() if name not in again}
