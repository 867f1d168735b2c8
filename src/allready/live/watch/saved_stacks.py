"""Stacks of ranks as agents saved them in a folder, for the terminal."""

from pathlib import Path

from allready.report.safe import plain

MAX_BYTES = 1 << 20


def stacks_in(folder: Path) -> dict[int, str]:
    """Rank -> its stacks, of the ranks whose stacks were written here; harmless for a terminal."""
    found = {}
    for path in sorted([*folder.glob("rank*/evidence/stacks.txt"), *folder.glob("node*/rank*/evidence/stacks.txt")]):
        name = path.parent.parent.name.removeprefix("rank")
        if not name.isdecimal():
            continue
        try:
            with path.open("rb") as file:
                text = file.read(MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            continue  # being written, or taken away
        found[int(name)] = plain(text, most=MAX_BYTES, keep_newlines=True)
    return dict(sorted(found.items()))
