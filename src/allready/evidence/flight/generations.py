"""Where a group's operations are counted anew: it was made again under its name, or formed again in place."""

from collections.abc import Hashable


class Generations:
    """Of all groups of one process.  Only the last generation of a group is of use: operations of the one before are
    over on all ranks.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[int | None, int]] = {}
        self._seen: set[Hashable] = set()

    def begins(self, group: Hashable, backend: str, number_here: object, seq: int) -> bool:
        """Whether a generation begins with this entry; to be asked of every entry, in the order of recording.

        Args:
            group: what names the group in this process.
            backend: back-ends of one group count on their own.
            number_here: the recorder's own number of the group, another one for each making.
            seq: the number of the entry's operation.
        """
        key = group, backend
        made = number_here if type(number_here) is int else None
        known, last = self._last.get(key, (None, -1))
        is_other = made is not None and known is not None and known != made
        is_first = is_other and (key, made) not in self._seen
        # A ring loses its oldest entries first: where an older generation is left, the first number of the new one is.
        is_again = seq < last and seq <= 1 and not is_other
        self._last[key] = made, seq
        if made is not None:
            self._seen.add((key, made))
        return is_again or (is_first and seq <= last)
