"""`--sync-dir DIR`: nodes that have only a shared folder in common before the start find node 0 through it.

Every node announces itself in a file of its own (`allready.launch.file_rendezvous`); node 0 (node rank 0, or by
agreement) waits for the others, then publishes the master's address and port and everybody's node rank.  After that the
ordinary roll call takes over at that port.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from allready.errors import DeadlineExceeded, ExchangeError, UsageError
from allready.launch import file_rendezvous
from allready.launch.file_rendezvous import Announcement, Found, Meeting, OnMissing, folder_name

T = TypeVar("T")

POLL_S = 0.5
LINGER_S = 15.0
"""Node 0 waits so long until all have read its file; NFS may take a while to show it."""
FAULT_LINGER_S = 3.0
"""The same for a fault; the others find it by themselves, too, and may be waiting for us in the same way."""
_IO_S = 30.0


async def find_each_other(
    folder: str,
    own: Announcement,
    *,
    timeout_s: float,
    choose_port: Callable[[], int],
    on_missing: OnMissing = lambda _missing, _here: None,
    port: int | None = None,
) -> Found:
    """Announce, wait for all `own.num_nodes`, and learn or decide who is node 0.  Nothing of ours stays in the folder.

    Args:
        folder: seen by all nodes; made if it does not exist.
        own: this node.
        timeout_s: for everybody to come.
        choose_port: called on node 0, when everybody is here: a free port of this machine.
        on_missing: (how many are missing, names of those here) every few seconds.
        port: the port that the user chose; then `choose_port` is not called.

    Raises:
        UsageError: the folder cannot be used, or what the nodes say does not fit together; both parties are named.
        DeadlineExceeded: not everybody came; the message says who is here.
        ExchangeError: the file system does not answer, or this node's file was taken away.
    """
    meeting = Meeting(Path(folder) / folder_name(own.job_id), own, on_missing)
    deadline = time.monotonic() + timeout_s
    try:
        await _in_thread(meeting.open)
        while True:
            answer = await _in_thread(meeting.look)
            if answer is None:
                roll = await _agreed(meeting)
                if roll and roll[0].instance == own.instance:
                    answer = await _lead(meeting, roll, port or choose_port())
            if answer is not None:
                return answer
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(meeting.who_is_here(timeout_s))
            meeting.name_missing()
            await asyncio.sleep(POLL_S)
    finally:
        with contextlib.suppress(ExchangeError):
            await asyncio.shield(_in_thread(meeting.close))


async def _agreed(meeting: Meeting) -> list[Announcement]:
    try:
        return meeting.agreed()
    except UsageError as error:
        text = str(error)
        await _in_thread(lambda: meeting.refuse(text))
        others = [a.instance for a in meeting.roll() if a.instance != meeting.instance]
        await _until(meeting, lambda: not meeting.any_present(others), FAULT_LINGER_S)
        raise


async def _lead(meeting: Meeting, roll: list[Announcement], port: int) -> Found | None:
    """Propose, and make it final when all agree; None if one of them did not, and everything is open again."""
    own, others = roll[0], [a.instance for a in roll[1:]]
    instances = [own.instance, *others]
    answer = Found(
        master_addr=own.addresses[0] if own.addresses else own.host,
        addresses=own.addresses,
        master_port=port,
        node_rank=0,
        names=tuple(a.host for a in roll),
    )
    await _in_thread(lambda: meeting.publish(answer, instances, final=False))
    if not await _until(meeting, lambda: meeting.all_agree(others), file_rendezvous.STALE_S + POLL_S):
        await _in_thread(meeting.withdraw)
        return None
    await _in_thread(lambda: meeting.publish(answer, instances, final=True))
    await _until(meeting, lambda: not meeting.any_present(others), LINGER_S)
    return answer


async def _until(meeting: Meeting, condition: Callable[[], bool], timeout_s: float) -> bool:
    """Look at the folder until the condition holds, at most `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        await _in_thread(meeting.refresh)
        if condition():
            return True
        await asyncio.sleep(POLL_S)
    return False


async def _in_thread(work: Callable[[], T]) -> T:
    """File system work with a deadline; a thread that hangs in it ends with the process.

    Raises:
        ExchangeError: no answer within `_IO_S`, or the file system's own error.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", value))

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as caught:  # noqa: BLE001 - raised again by whoever waits
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="allready-sync-dir", daemon=True).start()
    try:
        async with asyncio.timeout(_IO_S):
            return await done
    except TimeoutError:
        raise ExchangeError(f"--sync-dir: the file system does not answer within {_IO_S:.0f} s") from None
    except OSError as error:
        raise ExchangeError(f"--sync-dir: {error}") from None
