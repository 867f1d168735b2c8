"""How far one word is from another: slips of the pen."""


def distance(one: str, other: str, limit: int) -> int | None:
    """Insertions, deletions, replacements and swaps of neighbours; None when there are more than `limit`."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        row = [i]
        for j, theirs in enumerate(other, start=1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != theirs))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == theirs:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return None
        before, last = last, row
    return last[-1] if last[-1] <= limit else None
