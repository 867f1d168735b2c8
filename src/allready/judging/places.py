"""How sentences name ranks: with host and process where there are few, with nodes where there are many."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from allready.judging.stated import said
from allready.model import Phrase, ranges
from allready.model.fill import Several, joined, named_by

MAX_NAMED = 3
"""So many ranks are named each with its process."""
MAX_NODES = 8


class Place(Struct, frozen=True):
    """Where a rank runs, as far as it is known."""

    node: int | None = None
    host: str = ""
    pid: int | None = None

    def of_rank(self, rank: int) -> str:
        """`rank 2 (gpu04, pid 1037)`, `rank 2 (node 1)`."""
        if not self.host and self.node is not None:
            form = "rank {rank} (node {node}[[, pid {pid}]])"
            return named_by(said(form, rank=rank, node=self.node, pid=self.pid))
        where = ", ".join(part for part in (self.host, "" if self.pid is None else f"pid {self.pid}") if part)
        return f"rank {rank} ({where})" if where else f"rank {rank}"


def ranks_at(ranks: Iterable[int], places: Mapping[int, Place]) -> str | None:
    """`rank 2 (gpu02, pid 1037)`, `rank 0-7 (gpu01, gpu02)`: neutral enough for every language; None of no rank."""
    named = sorted(set(ranks))
    if not named:
        return None
    known = [places[r] for r in named if r in places]
    if len(named) <= MAX_NAMED and any(place.pid is not None for place in known):
        return joined([places.get(r, Place()).of_rank(r) for r in named])
    where, are_names = _nodes(known)
    is_several = len(named) > 1
    if where and not are_names:
        form = "rank {ranks} (node {nodes})"
        return named_by(said(form, ranks=ranges(named), nodes=where), is_several=is_several)
    text = f"rank {ranges(named)}" + (f" ({where})" if where else "")
    return Several(text) if is_several else text


def _nodes(places: Iterable[Place]) -> tuple[str, bool]:
    """Hosts, and True; numbers of nodes where one has no name, or several have the same."""
    known = list(places)
    if all(place.node is None for place in known):
        return _first(sorted({place.host for place in known if place.host})), True
    hosts = {place.node: place.host for place in known if place.node is not None}
    order = sorted(node for node in hosts if node is not None)
    named = [hosts[node] for node in order]
    are_names = all(named) and len(set(named)) == len(named)
    shown = named if are_names else [str(node) for node in order]
    return _first(shown), are_names


def _first(nodes: list[str]) -> str:
    return ", ".join(nodes[:MAX_NODES]) + (", …" if len(nodes) > MAX_NODES else "")


def num_ranks(ranks: Iterable[int]) -> Phrase | str | None:
    """`63 ranks`, `rank 5`: how many waited; the evidence has who.  None of no rank."""
    found = sorted(set(ranks))
    if len(found) > 1:
        return said("{num} ranks", num=len(found))
    return f"rank {found[0]}" if found else None
