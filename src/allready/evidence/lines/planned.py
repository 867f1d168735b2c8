"""The operations of the fast lane -> streams and codes."""

import numpy as np

from allready.evidence.lines.coll import CollLine
from allready.evidence.lines.lane import OperationRun
from allready.evidence.lines.loops import BoundLoop
from allready.evidence.lines.streams import Streams
from allready.evidence.lines.templates import Codes
from allready.model import Origin

_MAX_KNOWN = 64


class PlannedOperations:
    """Gives each operation of a `ChunkPlan` its stream and its code; new ones in the order of the lines."""

    def __init__(self, streams: Streams, source: str) -> None:
        self._streams, self._source = streams, source
        self._known: dict[tuple[object, ...], Codes] = {}  # loop and its communicators -> streams, codes

    def targets_and_codes(self, run: OperationRun) -> tuple[Codes, Codes]:
        """The stream and the code of each operation of a run."""
        if isinstance(run.of, CollLine):
            target, code = self._given_out(run.of, run.of)
            return np.array([target], np.uint16), np.array([code], np.uint16)
        (phase, num, _), loop = run.match, run.of.loop
        key = (loop, *(None if line is None else line.comm for line in run.of.lines))
        known = self._known.get(key)
        if known is None:
            both = self._first_round(run.of, phase, min(num, len(loop)))
            if num < len(loop):
                targets, codes = zip(*both, strict=True)
                return np.array(targets, np.uint16), np.array(codes, np.uint16)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = np.roll(np.array(both, np.uint16).T, phase, axis=1)
        both_rows = np.tile(known, -(-(phase + num) // len(loop)))[:, phase : phase + num]
        return both_rows[0], both_rows[1]

    def _first_round(self, bound: BoundLoop, phase: int, num: int) -> list[tuple[int, int]]:
        """Stream and code of the first operations of a run."""
        loop = bound.loop
        of_kinds: dict[int, tuple[int, int]] = {}
        found: list[tuple[int, int]] = []
        for place in range(phase, phase + num):
            index = place % len(loop)
            kind = loop.kinds[index]
            if kind not in of_kinds:
                line = bound.lines[loop.comms[index]]
                assert line is not None  # else no line matches the loop there
                of_kinds[kind] = self._given_out(line, loop.lines[index])
            found.append(of_kinds[kind])
        return found

    def _given_out(self, line: CollLine, operation: CollLine) -> tuple[int, int]:
        """The stream of a line's communicator, for which there is room, and the code of an operation in it."""
        target = self._streams.index(line)
        if target is None:
            target = self._streams.new(line, None, Origin(source=self._source, host=line.host, pid=line.pid))
        assert target is not None
        return target, self._streams.code(target, operation.shape)
