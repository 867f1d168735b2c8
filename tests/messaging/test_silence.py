"""Silence counts while this process runs; a peer whose kernel acknowledges may be late."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from allready.messaging.silence import LATE_FACTOR, RunTime, comes, receive, within

LIMIT_S = 0.6


async def after(delay_s: float) -> str:
    await asyncio.sleep(delay_s)
    return "word"


def stand_still(seconds: float) -> None:
    """What the loop of a busy machine does."""
    time.sleep(seconds)


async def until_silent(delay_s: float, *, is_answering: bool = False) -> tuple[str, float]:
    begun_s = time.monotonic()
    try:
        found = await receive(after(delay_s), LIMIT_S, is_answering=lambda: is_answering)
    except TimeoutError:
        found = "silent"
    return found, time.monotonic() - begun_s


@pytest.mark.parametrize(
    ("delay_s", "is_answering", "expected"),
    [(0.01, False, "word"), (30.0, False, "silent"), (LIMIT_S * 1.2, True, "word"), (30.0, True, "silent")],
)
async def test_a_peer_is_silent_after_the_limit_and_later_where_it_acknowledges(
    delay_s: float, is_answering: bool, expected: str
) -> None:
    found, took_s = await until_silent(delay_s, is_answering=is_answering)
    assert found == expected
    if found == "silent":
        assert took_s >= LIMIT_S * (LATE_FACTOR if is_answering else 1.0)


def _listen(results: Any, port_of: Callable[[], int]) -> None:
    """A process that is stopped while its peer goes on speaking."""

    async def listen() -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of())
        words = 0
        try:
            while words < 6:
                await receive(reader.readexactly(1), LIMIT_S, is_answering=lambda: False)
                words += 1
                results.put("listens" if words == 1 else words)
        except TimeoutError:
            return f"silent after {words}"
        finally:
            writer.close()
        return "heard all"

    results.put(asyncio.run(listen()))


@pytest.mark.jobs
async def test_a_process_that_did_not_run_hears_what_came_meanwhile() -> None:
    speaking: set[asyncio.Task[None]] = set()

    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        speaking.add(task)
        for _word in range(40):
            writer.write(b"x")
            await asyncio.sleep(0.1)
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=_listen, args=(results, lambda: port), daemon=True)
    process.start()
    try:
        assert await asyncio.to_thread(results.get, True, 20.0) == "listens"
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        await asyncio.sleep(3 * LIMIT_S)  # the loop goes on speaking
        os.kill(process.pid, signal.SIGCONT)
        deadline_s = time.monotonic() + 20.0
        last: object = None
        while not isinstance(last, str) and time.monotonic() < deadline_s:
            last = await asyncio.to_thread(results.get, True, 20.0)
        assert last == "heard all"
    finally:
        process.kill()
        process.join(5.0)
        server.close()
        await asyncio.wait(speaking)


async def test_an_answer_that_came_while_this_process_stood_still_is_there() -> None:
    """Alarm and answer are both due when it runs again."""
    answer = asyncio.create_task(within(LIMIT_S, after(LIMIT_S / 3)))
    await asyncio.sleep(LIMIT_S / 6)
    stand_still(2 * LIMIT_S)
    assert await answer == "word"
    with pytest.raises(TimeoutError):
        await within(LIMIT_S / 6, after(30.0))


async def test_time_in_which_the_loop_stood_still_does_not_count() -> None:
    served = RunTime()
    counts = asyncio.create_task(served.run())
    await asyncio.sleep(0.3)
    before_s, begun_s = served.now_s, time.monotonic()
    assert before_s > 0.0
    stand_still(1.0)
    await asyncio.sleep(0.0)
    assert served.now_s - before_s < (time.monotonic() - begun_s) / 2
    counts.cancel()


async def test_a_long_pause_is_known_for_a_while() -> None:
    runs = RunTime(long_s=0.2)
    task = asyncio.ensure_future(runs.run())
    try:
        await asyncio.sleep(0.01)
        assert runs.lately_paused_s(60.0) is None
        stand_still(0.3)
        assert (runs.lately_paused_s(60.0) or 0.0) >= 0.3  # asked before `run` goes on
        await asyncio.sleep(0.15)
        assert (runs.lately_paused_s(60.0) or 0.0) >= 0.3
        assert runs.lately_paused_s(0.1) is None
    finally:
        task.cancel()


async def test_time_before_it_counts_is_no_pause() -> None:
    """A node 0 whose port was taken at first was said not to have run."""
    runs = RunTime(long_s=0.2)
    await asyncio.sleep(0.3)
    task = asyncio.ensure_future(runs.run())
    try:
        await asyncio.sleep(0.15)
        assert runs.lately_paused_s(60.0) is None
    finally:
        task.cancel()


def test_a_thread_that_did_not_run_meanwhile_has_its_time_still() -> None:
    asked: list[float] = []

    def wait(seconds: float) -> bool:
        asked.append(seconds)
        stand_still(LIMIT_S if len(asked) == 1 else 0.0)  # as a machine does that gives this process no processor
        return len(asked) == 3

    assert comes(wait, LIMIT_S / 2)
    assert max(asked) < LIMIT_S / 4
    begun_s = time.monotonic()
    assert not comes(threading.Event().wait, LIMIT_S / 4)
    assert time.monotonic() - begun_s >= LIMIT_S / 4
