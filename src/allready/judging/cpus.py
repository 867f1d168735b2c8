"""Lists of CPUs as the kernel writes them."""


def cpus_of(text: str) -> frozenset[int]:
    """The numbers of "0-3,8"; none where it is anything else."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        if not low.isdecimal() or not (high or low).isdecimal() or len(high or low) > 5:
            return frozenset()
        found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)
