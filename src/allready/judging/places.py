"""How sentences name ranks: with host and process where there are few, with nodes where there are many."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from allready.judging.stated import said
from allready.model import Phrase, ranges
from allready.model.fill import UNNAMED_PROCESS, Several, joined

MAX_NAMED = 3
"""So many ranks are named each with its process."""
MAX_NODES = 8


class Place(Struct, frozen=True):
    """Where a rank runs, as far as it is known."""

    node: int | None = None
    host: str = ""
    pid: int | None = None

    def __str__(self) -> str:
        """`gpu04, pid 1037`, `node 1`."""
        where = self.host or ("" if self.node is None else f"node {self.node}")
        return ", ".join((*((where,) if where else ()), *(() if self.pid is None else (f"pid {self.pid}",))))


def ranks_at(ranks: Iterable[int], places: Mapping[int, Place]) -> str:
    """`rank 2 (gpu02, pid 1037)`, `rank 0-7 (gpu01, gpu02)`: neutral enough for every language."""
    named = sorted(set(ranks))
    if not named:
        return UNNAMED_PROCESS
    known = [places[r] for r in named if r in places]
    if len(named) <= MAX_NAMED and any(place.pid is not None for place in known):
        return joined([f"rank {r}" + (f" ({at})" if (at := str(places.get(r, Place()))) else "") for r in named])
    text = f"rank {ranges(named)}" + (f" ({where})" if (where := _nodes(known)) else "")
    return Several(text) if len(named) > 1 else text


def _nodes(places: Iterable[Place]) -> str:
    """Hosts; numbers of nodes where one has no name, or several have the same."""
    known = list(places)
    if all(place.node is None for place in known):
        return _first(sorted({place.host for place in known if place.host}))
    hosts = {place.node: place.host for place in known if place.node is not None}
    order = sorted(node for node in hosts if node is not None)
    named = [hosts[node] for node in order]
    are_names = all(named) and len(set(named)) == len(named)
    shown = named if are_names else [str(node) for node in order]
    text = _first(shown)
    return text if are_names or not text else f"node {text}"


def _first(nodes: list[str]) -> str:
    return ", ".join(nodes[:MAX_NODES]) + (", …" if len(nodes) > MAX_NODES else "")


def num_ranks(ranks: Iterable[int]) -> Phrase | str:
    """`63 ranks`, `rank 5`: how many waited; the evidence has who."""
    found = sorted(set(ranks))
    if len(found) > 1:
        return said("{num} ranks", num=len(found))
    return f"rank {found[0]}" if found else UNNAMED_PROCESS
