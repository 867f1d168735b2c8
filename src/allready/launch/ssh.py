"""`--hosts a,b,c`: the agents of all nodes, started from one shell over OpenSSH, and ended with it.

Every agent's standard input is the connection: a pipe that we keep open and write a byte to now and then.  When it
closes (Ctrl-C here, this process killed, sshd killed, network gone), the agent ends its job (`until_stdin_ends`).
"""

import asyncio
import contextlib
import os
import re
import secrets
import signal
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence

from msgspec import Struct, field

from allready.launch.request import Note
from allready.launch.ssh_words import MARK, SshOptions, Target, remote_command, ssh_argv
from allready.patterns import compiled
from allready.proc.kill import signal_group

HEARTBEAT_S = 5.0
SILENCE_S = 60.0
EXIT_NOT_STARTED = 3
PASSED = ("SIGUSR1", "SIGUSR2")
"""Signals that end nothing.  The ranks of all nodes get them, and those that end the job, as lines of the agents'
standard input, since ssh has no way for them."""
MAX_LINE_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
_LAST_LINES_S = 2.0
_MAX_NAME_BYTES = 32

OnLine = Callable[[int, str, str], None]
OnNote = Callable[[Note], None]

# What OpenSSH prints (ssh.c, sshconnect.c, packet.c, and the operating system's texts of errors) -> text `ssh.KEY`.
_SAYINGS = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "key_changed"),
    (r"Host key verification failed|No \S+ host key is known", "key_unknown"),
    (r"Permission denied|Too many authentication failures", "denied"),
    (r"Could not resolve hostname|Name or service not known|nodename nor servname", "no_name"),
    (r"Connection refused", "refused"),
    (r"timed out|Operation timed out", "silent"),
    (r"No route to host|Network is unreachable", "no_route"),
    (r"Bad configuration option|unsupported option|keyword \S+ extra arguments|Bad owner or permissions", "bad_option"),
    (r"kex_exchange_identification|Connection closed by|Connection reset|banner exchange", "closed"),
)


_NO_ALLREADY = r"No module named '?allready(?:\.__main__)?'?(?:;|$)"  # Python's own message


class _Node(Struct, eq=False):
    """One host and its ssh."""

    rank: int
    target: Target
    process: asyncio.subprocess.Process
    token: str
    started: bool = False
    begun: bool = False  # its ranks were started: all nodes had met
    remark: str = ""  # no-directory, no-python, no-allready
    exit_code: int | None = None  # the agent's; None if the connection ended before it
    last_words: deque[str] = field(default_factory=lambda: deque(maxlen=40))


async def run_hosts(
    commands: Sequence[Sequence[str]],
    targets: Sequence[Target],
    options: SshOptions,
    *,
    secret: str = "",
    signals: "asyncio.Queue[str] | None" = None,
    on_line: OnLine,
    on_note: OnNote = lambda _note: None,
) -> int:
    """Run one command per host until all have ended; the job's exit code.

    That is node 0's, or the first other one that is not 0; 3 if a host cannot be reached or its connection is lost,
    which ends the command on all others.  Cancelled, it ends everything everywhere, within `end_s`, and raises.

    Args:
        commands: words for each host, of `agent_commands`; the first word is a program.
        secret: the first line of every agent's standard input: the token of the job, which no command line shows.
        signals: names that every agent takes as if it got the signal, whenever one is put there.  One that is not in
            PASSED ends the job: what has not yet reached its host is ended at once.
        on_line: (node rank, "stdout" or "stderr", line without its end) for whatever the commands print.
        on_note: gets what the user should know when a host fails.
    """
    token = f"allready-{secrets.token_hex(8)}"
    nodes: list[_Node] = []
    with _stop_key_ignored():
        try:
            for rank, (words, target) in enumerate(zip(commands, targets, strict=True)):
                nodes.append(await _start(rank, words, target, options, token, secret))
            return await _attend(nodes, options, signals or asyncio.Queue(), on_line, on_note)
        finally:
            await _kill(nodes)


async def _start(
    rank: int, words: Sequence[str], target: Target, options: SshOptions, token: str, secret: str
) -> _Node:
    argv = ssh_argv(target, remote_command(words, options, token), options)
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert process.stdin is not None
    process.stdin.write(secret.encode("utf-8", "surrogateescape") + b"\n")
    return _Node(rank=rank, target=target, process=process, token=token)


async def _attend(
    nodes: list[_Node], options: SshOptions, signals: "asyncio.Queue[str]", on_line: OnLine, on_note: OnNote
) -> int:
    ends = [asyncio.ensure_future(_follow(node, on_line)) for node in nodes]
    heartbeats = asyncio.ensure_future(_send_heartbeats(nodes))
    passing = asyncio.ensure_future(_pass_signals(nodes, signals))
    late = asyncio.ensure_future(_watch_start(nodes, options, on_note))
    try:
        return await _until_all_ended(nodes, ends, options, on_note)
    except asyncio.CancelledError:
        _close_inputs(nodes)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.end_s):
                await asyncio.gather(*ends, return_exceptions=True)
        raise
    finally:
        for task in (heartbeats, passing, late, *ends):
            task.cancel()
        await asyncio.gather(heartbeats, passing, late, *ends, return_exceptions=True)


async def _until_all_ended(
    nodes: list[_Node], ends: Sequence["asyncio.Future[None]"], options: SshOptions, on_note: OnNote
) -> int:
    loop = asyncio.get_running_loop()
    pending: set[asyncio.Future[None]] = set(ends)
    deadline: float | None = None
    failure: int | None = None
    is_ending = False
    while pending:
        timeout_s = None if deadline is None else max(0.0, deadline - loop.time())
        done, pending = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:  # the deadline
            if is_ending:
                await _kill(nodes)
                continue
            _close_inputs(nodes)
            is_ending, deadline = True, loop.time() + options.end_s
        for end in done:
            end.result()
            node = nodes[ends.index(end)]
            if node.exit_code == 0 or (failure is not None and node.exit_code is None):
                continue
            if failure is None:
                note = _note_of(node)
                if note is not None:
                    on_note(note)
                failure = EXIT_NOT_STARTED if node.exit_code is None or node.remark else node.exit_code
                if node.exit_code is None or node.remark:
                    _close_inputs(nodes)
                    is_ending = True
                # Without this node the others cannot begin; once they have, they deal with it themselves.
                settle_s = options.settle_s if node.begun else min(options.settle_s, options.settle_unbegun_s)
                deadline = loop.time() + (options.end_s if is_ending else settle_s)
    first = nodes[0].exit_code
    return failure if failure is not None and (first in {0, None} or failure == EXIT_NOT_STARTED) else (first or 0)


async def _follow(node: _Node, on_line: OnLine) -> None:
    """Until ssh has ended and all its output was passed on."""
    assert node.process.stdout is not None
    assert node.process.stderr is not None
    pumps = asyncio.gather(
        _pump(node, "stdout", node.process.stdout, on_line), _pump(node, "stderr", node.process.stderr, on_line)
    )
    try:
        while not pumps.done() and node.process.returncode is None:
            await asyncio.wait({pumps}, timeout=0.5)
        # A connection that ssh keeps for later (ControlPersist) holds the pipes open for as long.
        await asyncio.wait({pumps}, timeout=None if node.process.returncode is None else _LAST_LINES_S)
    finally:
        pumps.cancel()
        await asyncio.gather(pumps, return_exceptions=True)
    await _reaped(node)


async def _reaped(node: _Node) -> None:
    """Until the process is gone; `wait` of asyncio would also wait for the pipes."""
    while node.process.returncode is None:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.05)


async def _pump(node: _Node, stream: str, reader: asyncio.StreamReader, on_line: OnLine) -> None:
    async for line in _lines(reader):
        if stream == "stderr":
            if line.startswith(node.token):
                _heed(node, line[len(node.token) :].split())
                continue
            node.last_words.append(line[:2000])
            if not node.started:
                continue  # ssh's own message, reported in ours if it fails
        on_line(node.rank, stream, line)


def _heed(node: _Node, words: list[str]) -> None:
    match words:
        case ["started"]:
            node.started = True
        case ["begun"]:
            node.begun = True
        case ["ended", code] if code.isdecimal():
            node.exit_code = int(code)
            if node.exit_code and any(compiled(_NO_ALLREADY).search(line) for line in node.last_words):
                node.remark = "no-allready"
        case [("no-directory" | "no-python") as remark]:
            node.remark = remark


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines as text, a very long one in pieces."""
    buffer = bytearray()
    while data := await reader.read(_CHUNK_BYTES):
        buffer += data
        while (end := buffer.find(b"\n")) >= 0 or len(buffer) > MAX_LINE_BYTES:
            end = end if 0 <= end <= MAX_LINE_BYTES else MAX_LINE_BYTES
            line = bytes(buffer[:end])
            del buffer[: end + (buffer[end : end + 1] == b"\n")]
            yield line.decode(errors="replace").removesuffix("\r")
    if buffer:
        yield buffer.decode(errors="replace")


async def _send_heartbeats(nodes: list[_Node]) -> None:
    """Show the agents that this end lives."""
    while True:
        _write_to_all(nodes, b"\n")
        await asyncio.sleep(HEARTBEAT_S)


async def _pass_signals(nodes: list[_Node], signals: "asyncio.Queue[str]") -> None:
    while True:
        name = await signals.get()
        _write_to_all(nodes, name.encode() + b"\n")
        if name not in PASSED:
            _end_unstarted(nodes)


def _write_to_all(nodes: list[_Node], line: bytes) -> None:
    """Write one line to every agent's standard input."""
    for node in nodes:
        stdin = node.process.stdin
        if stdin is None or stdin.is_closing() or node.process.returncode is not None:
            continue
        if stdin.transport.get_write_buffer_size() < _CHUNK_BYTES:  # else nothing reads there
            stdin.write(line)


async def _watch_start(nodes: list[_Node], options: SshOptions, on_note: OnNote) -> None:
    """End the ssh of a host that lets us wait for its shell."""
    await asyncio.sleep(options.start_s)
    for node in nodes:
        if not node.started and node.process.returncode is None:
            on_note(Note(key="ssh.no_shell", values={"host": str(node.target), "seconds": f"{options.start_s:.0f}"}))
            node.remark = "reported"
            signal_group(node.process.pid, signal.SIGTERM)


def _close_inputs(nodes: list[_Node]) -> None:
    for node in nodes:
        if node.process.stdin is not None:
            node.process.stdin.close()
    _end_unstarted(nodes)


def _end_unstarted(nodes: list[_Node]) -> None:
    """What still connects: nothing runs there that could end by itself."""
    for node in nodes:
        if not node.started and node.process.returncode is None:
            signal_group(node.process.pid, signal.SIGTERM)


async def _kill(nodes: list[_Node]) -> None:
    for node in nodes:
        if node.process.returncode is None:
            signal_group(node.process.pid, signal.SIGKILL)
    for node in nodes:
        await _reaped(node)
        if node.process.stdin is not None:
            node.process.stdin.close()


def announce_begin() -> None:
    """In an agent that was started over ssh: report that the nodes have met and the ranks are started."""
    mark = os.environ.pop(MARK, "")  # no business of the ranks
    if mark:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{mark} begun\n")
            sys.stderr.flush()


def _last(node: _Node) -> str:
    return next((line.strip() for line in reversed(node.last_words) if line.strip()), "")


def _note_of(node: _Node) -> Note | None:
    values = {"host": str(node.target), "node": str(node.rank)}
    if node.remark == "reported":
        return None
    if node.remark:
        return Note(key=f"ssh.{node.remark.replace('-', '_')}", values=values)
    if node.exit_code is not None:
        if node.begun or not node.last_words:
            return Note(key="ssh.ended", values={**values, "code": str(node.exit_code)})
        return Note(key="ssh.ended_early", values={**values, "code": str(node.exit_code), "words": _last(node)})
    output = "\n".join(node.last_words)
    last = _last(node)
    if node.started:
        return Note(key="ssh.lost", values={**values, "words": last or "no reason given"})
    for pattern, key in _SAYINGS:
        match = re.search(pattern, output)
        if match:
            line = next(line for line in output.splitlines() if match[0] in line)
            return Note(key=f"ssh.{key}", values={**values, "words": line.strip()})
    code = node.process.returncode
    return Note(key="ssh.other", values={**values, "words": last or f"exit code {code}"})


@contextlib.contextmanager
def _stop_key_ignored() -> Iterator[None]:
    """Ctrl-Z would stop our signs of life, and the agents would end the job."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)


async def until_stdin_ends(
    descriptor: int = 0,
    *,
    silence_s: float = SILENCE_S,
    names: Collection[str] = PASSED,
    on_signal: Callable[[str], object] = lambda _: None,
) -> str:
    """Returns why this agent must end: "closed", or "silent" when signs of life came and then none for `silence_s`.

    For `--end-with-stdin`; started as a task by the agent, cancelled when its job is over.

    Args:
        on_signal: called with each of `names` that comes as a line.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        """Called only when there is something to read, or the end: it does not block."""
        try:
            chunks.put_nowait(os.read(descriptor, _CHUNK_BYTES))
        except BlockingIOError:
            return
        except OSError:
            chunks.put_nowait(b"")

    try:
        loop.add_reader(descriptor, read)
    except (OSError, ValueError):  # closed, or a file: nothing could close it
        return "closed"
    try:
        patience_s: float | None = None  # no heartbeat is expected before the first one
        rest = b""
        while True:
            async with asyncio.timeout(patience_s):
                chunk = await chunks.get()
            if not chunk:
                break
            patience_s = silence_s
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:_MAX_NAME_BYTES]
            for line in lines:
                if (name := line.decode("ascii", "replace")) in names:
                    on_signal(name)
    except TimeoutError:
        return "silent"
    finally:
        loop.remove_reader(descriptor)
    return "closed"
