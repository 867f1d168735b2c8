"""Under `allready run`: the failure that the ranks agreed upon, left to the agent where a process ends by it."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from allready.model import CallFailed, FailureCause, LogBegin
from allready.redaction import masked_all
from allready.runtime.failures import CollectiveFailed


def keep(error: BaseException | None, *, rank: int, attempt: str) -> None:
    """Write it beside the other evidence of this rank.

    Args:
        error: what ends the process, if an exception does.
        rank, attempt: whose it is.
    """
    from allready.live.beacon import names

    found = next((e for e in _chain(error) if isinstance(e, CollectiveFailed)), None)
    if found is None or found.failure is None or found.failure.cause is FailureCause.JOINS or not names.RANK_FOLDER:
        return
    now_s = time.time()
    members = len(found.failure.ranks)
    begin = LogBegin(
        attempt=attempt, rank=rank, world_size=members, time_s=now_s, host=socket.gethostname(), pid=os.getpid()
    )
    failed = CallFailed(time_s=now_s, failure=found.failure, operation=found.operation)
    with contextlib.suppress(OSError):
        path = Path(names.RANK_FOLDER[0]) / names.AGREED
        path.write_bytes(b"".join(msgspec.json.encode(masked_all(line)) + b"\n" for line in (begin, failed)))


def keep_last(*, rank: int, attempt: str) -> None:
    """At the end of the process: what ends it, if an exception does."""
    keep(getattr(sys, "last_value", None), rank=rank, attempt=attempt)


def forget() -> None:
    """What a process before this one left in its place."""
    from allready.live.beacon import names

    if names.RANK_FOLDER:
        with contextlib.suppress(OSError):
            (Path(names.RANK_FOLDER[0]) / names.AGREED).unlink(missing_ok=True)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """It and what it came from, the last first."""
    seen: list[BaseException] = []
    while error is not None and not any(error is one for one in seen):
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
