"""The kept lines of a scan in the order of the file, each once, although blocks overlap."""

from collections import deque
from collections.abc import Iterable, Iterator
from operator import attrgetter

from allready.evidence.lines.model import LIMITS, RawLine, Scanned

MAX_FOLLOWERS = 200_000


def in_order(scanned: Scanned) -> list[tuple[int, bytes, bool]]:
    """(number, text, whether it was kept for its own sake) of every line that is there.

    Numbers of followers are the least that they can be: operations between them were left out.
    """
    if not any(map(attrgetter("following"), scanned.lines)):
        return [(raw.number, raw.text, True) for raw in scanned.lines]
    return list(_with_followers(scanned))


def _with_followers(scanned: Scanned) -> Iterator[tuple[int, bytes, bool]]:
    window: deque[tuple[int, bytes]] = deque()
    left = MAX_FOLLOWERS
    for raw in scanned.lines:
        place = next((i for i, (_, text) in enumerate(window) if text == raw.text), None)
        if window and window[0][0] > raw.number:
            window.clear()
            place = None
        for number, text in _before(window, place):
            if number < raw.number:
                yield number, text, False
        yield raw.number, raw.text, True
        if raw.following and left > 0:
            left -= len(raw.following)
            window = deque(enumerate(raw.following, start=raw.number + 1))
    for number, text in window:
        yield number, text, False


def _before(window: deque[tuple[int, bytes]], place: int | None) -> Iterable[tuple[int, bytes]]:
    """Take out what stands before the kept line at `place` of the window (all of it when it is not there)."""
    taken = [window.popleft() for _ in range(len(window) if place is None else place)]
    if place is not None:
        window.popleft()
    return taken


def from_lines(lines: Iterable[bytes]) -> Scanned:
    """What `lines` would be if each of them were worth reading; operations are counted only."""
    scanned = Scanned()
    edges: list[bytes] = []
    offset = 0
    for number, line in enumerate(lines, start=1):
        text = line.rstrip(b"\r\n")
        edges.append(text)
        scanned.num_lines += 1
        scanned.num_bytes += len(line)
        if not text.strip():
            scanned.num_blank += 1
        elif b": opCount " in text and b"NCCL INFO" in text:
            scanned.num_coll += 1
            offset += len(line)
            continue
        scanned.lines.append(RawLine(number=number, offset=offset, text=text))
        offset += len(line)
    whole = b"".join(text + b"\n" for text in edges)
    scanned.head, scanned.tail = whole[: LIMITS.edge_bytes], whole[-LIMITS.edge_bytes :]
    return scanned
