"""The fast tests in several processes, each a copy of the one that has collected them.

Processes of pytest-xdist collect every test anew and send five messages for each: a quarter of the time of tests that
take milliseconds.  Here a copy takes one file after the other, so that the tests of a file share what they make once,
and sends its reports; the first process shows them.  A test whose process dies has failed, and others run what it left.

Only `--fast` runs like this: its tests start no jobs, and what they import starts no threads, which a copy would lack.
"""

import contextlib
import os
import pickle
import selectors
import signal
import struct
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, pairwise
from typing import Any, NoReturn, Self

import pytest

TOKEN = struct.Struct("=I")
"""The number of a group of tests, read whole or not at all; and the length of a message."""
MAX_TOKENS_BYTES = 60_000
"""A pipe takes as much before anyone reads."""
END_S = 10.0
"""For what tests clean up when the run is interrupted."""


def run(session: pytest.Session, count: int, group_of: Callable[[str], str]) -> None:
    """Run the tests of a session in up to `count` processes; those of one group in one of them.

    Raises:
        pytest.Session.Failed: as many have failed as `--maxfail` allows.
        pytest.Session.Interrupted: a plugin asked for the end.
    """
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all copies
    left = dict(enumerate(session.items))
    while left:
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for number, item in left.items():
            groups[group_of(item.nodeid.partition("::")[0])].append(number)
        dealt = sorted(groups.values(), key=lambda numbers: _size_bytes(left, numbers), reverse=True)
        dealt = dealt[: MAX_TOKENS_BYTES // TOKEN.size]
        with _Copies(session, dealt, min(count, len(dealt))) as copies:
            for number, reports in copies.results():
                item = left.pop(number)
                for report in reports:
                    session.config.hook.pytest_runtest_logreport(report=report)
                session.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)


def _size_bytes(items: Mapping[int, pytest.Item], numbers: list[int]) -> int:
    """Of the files of these tests: what takes long comes first, so that no process is alone with it at the end."""
    return sum(path.stat().st_size for path in {items[number].path for number in numbers})


class _Copies:
    """The processes of one round, and what they send."""

    def __init__(self, session: pytest.Session, dealt: list[list[int]], count: int) -> None:
        self._session = session
        self._dealt = dealt
        self._count = count
        self._pids: dict[int, int] = {}  # by the pipe of each
        self._running: dict[int, int | None] = {}

    def __enter__(self) -> Self:
        self._tokens, give = os.pipe()
        os.write(give, b"".join(TOKEN.pack(at) for at in range(len(self._dealt))))
        os.close(give)
        sys.stdout.flush()
        sys.stderr.flush()
        for _ in range(self._count):
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                for other in (reading, *self._pids):
                    os.close(other)
                _be_a_copy(self._session, self._items(), writing)
            os.close(writing)
            self._pids[reading] = pid
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._tokens)
        for pipe, pid in self._pids.items():  # none is left but at an early end
            os.close(pipe)
            _end(pid)

    def _items(self) -> Iterator[tuple[int, pytest.Item]]:
        while token := os.read(self._tokens, TOKEN.size):
            for number in self._dealt[TOKEN.unpack(token)[0]]:
                yield number, self._session.items[number]

    def results(self) -> Iterator[tuple[int, list[pytest.TestReport]]]:
        """The number of each test that ended, and its reports; of the test of a process that died one that says so."""
        with selectors.DefaultSelector() as selector:
            for pipe in self._pids:
                selector.register(pipe, selectors.EVENT_READ)
            while self._pids:
                for key, _ in selector.select():
                    message = _receive(key.fd)
                    if message is None:
                        selector.unregister(key.fd)
                        yield from self._ended(key.fd)
                        continue
                    ended, reports, self._running[key.fd] = message
                    if ended is not None:
                        yield ended, [self._report(one) for one in reports]

    def _report(self, data: dict[str, Any]) -> pytest.TestReport:
        config = self._session.config
        report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=data)
        return report

    def _ended(self, pipe: int) -> Iterator[tuple[int, list[pytest.TestReport]]]:
        os.close(pipe)
        _, status = os.waitpid(self._pids.pop(pipe), 0)
        code = os.waitstatus_to_exitcode(status)
        number = self._running.pop(pipe, None)
        if number is not None:
            item = self._session.items[number]
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            text = f"the process of this test ended: {how}"
            yield number, [pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")]
        elif code:
            raise RuntimeError(f"a process of the tests ended between two of them, exit code {code}")


def _be_a_copy(session: pytest.Session, items: Iterator[tuple[int, pytest.Item]], pipe: int) -> NoReturn:
    """Run the items and send their reports, in a process of its own that ends here."""
    code = 1
    try:
        reports: list[pytest.TestReport] = []
        plugins = session.config.pluginmanager
        terminal: Any = plugins.get_plugin("terminalreporter")
        plugins.unregister(terminal)
        plugins.register(_Keeper(reports, terminal._tw), "terminalreporter")
        captured: Any = plugins.get_plugin("capturemanager")
        captured.stop_global_capturing()  # its files are shared with the other copies
        captured.start_global_capturing()
        captured.suspend_global_capture()
        hook = session.config.hook
        for (number, item), (next_number, following) in pairwise(chain([(None, None)], items, [(None, None)])):
            if item is not None:
                hook.pytest_runtest_protocol(item=item, nextitem=following)
            data = [hook.pytest_report_to_serializable(config=session.config, report=one) for one in reports]
            _send(pipe, (number, data, next_number))
            reports.clear()
        code = 0
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):
            session._setupstate.teardown_exact(None)
    except BrokenPipeError:
        pass  # the first process is gone or wants no more
    except BaseException:  # noqa: BLE001 - it must not go on as if it were the first process
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)


class _Keeper:
    """In the place of the plugin that shows reports."""

    def __init__(self, reports: list[pytest.TestReport], terminal_writer: object) -> None:
        self._reports = reports
        self._tw = terminal_writer  # for the stacks of a test that takes too long

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)


def _send(pipe: int, message: object) -> None:
    data = pickle.dumps(message)
    data = TOKEN.pack(len(data)) + data
    while data:
        data = data[os.write(pipe, data) :]


def _receive(pipe: int) -> tuple[int | None, list[dict[str, Any]], int | None] | None:
    """One message: the test that ended, its reports, and the one that begins; None where its sender has ended."""
    head = _read(pipe, TOKEN.size)
    data = _read(pipe, TOKEN.unpack(head)[0]) if head else b""
    return pickle.loads(data) if data else None


def _read(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(pipe, size - len(data))
        if not part:
            return b""
        data += part
    return data


def _end(pid: int) -> None:
    """End a copy in the middle of its work: first let its tests clean up."""
    os.kill(pid, signal.SIGINT)
    until_s = time.monotonic() + END_S
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > until_s:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
