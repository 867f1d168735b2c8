"""All readings of one run put together."""

from allready.evidence.join.assemble import assemble, only_ranks, world_of

__all__ = ["assemble", "only_ranks", "world_of"]
