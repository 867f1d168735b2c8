"""Which global ranks each node gets, from what the nodes offer."""

from collections.abc import Mapping

from msgspec import Struct

from allready.agent.messages import Offer
from allready.launch.ranks import Entry, assign


class Assignment(Struct, frozen=True, kw_only=True):
    """`order`: node ranks in the order of their global ranks."""

    order: tuple[int, ...]
    ranks: Mapping[int, tuple[int, ...]]
    world_size: int


def assign_ranks(offers: Mapping[int, Offer]) -> Assignment:
    """Places and global ranks of the nodes that are here.

    Args:
        offers: node rank -> what it brings; node 0 holds the master's address.

    Raises:
        RanksError: what the nodes say of their ranks cannot all be true.
    """
    present = sorted(offers)
    places = assign(
        [
            Entry(
                name=f"node {n} ({offers[n].name})",
                nproc=offers[n].nproc_per_node,
                start_rank=offers[n].start_rank,
                arrival=float(n),
                is_master=n == 0,
            )
            for n in present
        ]
    )
    ranks = {present[place.entry]: place.ranks for place in places}
    return Assignment(
        order=tuple(sorted(ranks, key=lambda n: ranks[n])), ranks=ranks, world_size=sum(map(len, ranks.values()))
    )
