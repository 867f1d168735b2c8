"""A short log that was copied from a terminal, which broke every line at its own width: the lines as they were."""

from allready.patterns import compiled_bytes

MAX_BYTES = 64 << 10
_WIDTHS = range(40, 250)
_MIN_FULL, _MIN_TORN, _MIN_SHARE = 3, 2, 4
_HEAD_BYTES = 10
_INSIDE_A_WORD = rb"[a-z_]\n[a-z_]"


def unfolded(data: bytes) -> bytes | None:
    """The same text with whole lines, each followed by as many empty ones as it had pieces more, so that what follows
    keeps its numbers; None where nothing shows that a terminal broke it.

    What shows it: no line is longer than several that have one length, these are at least a quarter, words go on in the
    line behind them, and nothing behind such a line begins as the line itself does.
    """
    if len(data) > MAX_BYTES:
        return None
    rows = data.replace(b"\r\n", b"\n").split(b"\n")
    width = max(map(len, rows))
    full = [at for at, row in enumerate(rows[:-1]) if len(row) == width]
    if width not in _WIDTHS or len(full) < max(_MIN_FULL, sum(map(bool, rows)) // _MIN_SHARE):
        return None
    torn = sum(
        compiled_bytes(_INSIDE_A_WORD).match(rows[at][-1:] + b"\n" + rows[at + 1][:1]) is not None for at in full
    )
    if torn < _MIN_TORN or any(_begins_alike(rows[at], rows[at + 1]) for at in full):
        return None
    lines: list[bytes] = []
    first = None
    for row in rows:
        if first is None:
            first = len(lines)
            lines.append(row)
        else:
            lines[first] += row
            lines.append(b"")
        if len(row) < width:
            first = None
    return b"\n".join(lines)


def _begins_alike(one: bytes, other: bytes) -> bool:
    """Whether two lines have the same beginning but for digits: a logger wrote both."""
    heads = (compiled_bytes(rb"\d").sub(b"0", row[:_HEAD_BYTES]) for row in (one, other))
    return next(heads) == next(heads)
