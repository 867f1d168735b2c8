"""`attempts.jsonl` of `allready run`: how its attempts ended -> `Reading`."""

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from allready.evidence.reading import Reading
from allready.model import AttemptRecord, Closing, ClosingKind, EndCause, Origin, SourceRecord
from allready.model.events import troubled
from allready.model.fill import said

KIND = "attempts"

_decoder = msgspec.json.Decoder(AttemptRecord)


def read_attempts(data: bytes, label: str) -> Reading:
    """A good end where the last attempt had one, and when the job ran; a line that is damaged or cut is counted and
    passed over."""
    attempts: list[tuple[int, AttemptRecord]] = []
    num_lines = num_damaged = 0
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        num_lines += 1
        try:
            attempts.append((number, _decoder.decode(line)))
        except msgspec.DecodeError:
            num_damaged += 1
    record = SourceRecord(path=label, kind=KIND, num_lines=num_lines, num_understood=len(attempts))
    if num_damaged:
        record = troubled(record, said("{num} of {all} lines are damaged", num=num_damaged, all=num_lines))
    if not attempts or num_damaged:
        return Reading(source=record)
    record = _timed(record, (attempt for _, attempt in attempts))
    number, last = attempts[-1]
    if last.outcome is not EndCause.SUCCESS or last.exit_code != 0:
        return Reading(source=record)
    text = f"attempt {last.attempt}: {last.reason}"
    origin = Origin(source=label, line=number)
    return Reading(source=record, closing=Closing(origin=origin, kind=ClosingKind.RECORD, text=text, is_certain=True))


def _timed(record: SourceRecord, attempts: Iterable[AttemptRecord]) -> SourceRecord:
    """The record with the first and the last time of all attempts, where each has both."""
    try:
        times = [datetime.fromisoformat(text).timestamp() for one in attempts for text in (one.start, one.end)]
    except (ValueError, OverflowError):
        return record
    return replace(record, first_time_s=min(times), last_time_s=max(times))
