"""What NCCL says in the output of a rank: which algorithm it takes, and what its own diagnostics found."""

import time
from collections.abc import Iterator

from allready.evidence.log.nccl import choice_of, diagnostic_of
from allready.preflight.collectives.wire import ProgressLine

MAX_LINES = 1024
_LONGEST_BYTES = 4096
_CHOICE, _DIAGNOSTIC = b" Bytes -> Algo ", b"NCCL DIAG ["


class NcclWords:
    """Reads the output of one rank as it comes."""

    def __init__(self) -> None:
        self._pending = b""
        self._seen: set[object] = set()

    def feed(self, chunk: bytes) -> Iterator[ProgressLine]:
        """What is new in these bytes."""
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        self._pending = self._pending[-_LONGEST_BYTES:]
        for raw in lines:
            if _CHOICE not in raw and _DIAGNOSTIC not in raw:
                continue
            text = raw[:_LONGEST_BYTES].decode(errors="replace")
            choice, diagnostic = choice_of(text), diagnostic_of(text)
            found = choice or diagnostic
            if found is not None and found not in self._seen and len(self._seen) < MAX_LINES:
                self._seen.add(found)
                yield ProgressLine(event="nccl", at=time.monotonic(), choice=choice, diagnostic=diagnostic)
