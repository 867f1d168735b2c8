"""Hooks that notify of a failure: a function, a command, an address.

They work in a thread of their own with a bounded queue, so none can delay or break training.  The message holds no
secrets that can be recognised, and logs hold neither addresses nor commands.
"""

import signal
import subprocess
import urllib.request
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from allready.errors import UsageError
from allready.model import CallFailed, LogBegin, LogLine, RankOut
from allready.proc.kill import end_child, signal_group
from allready.redaction import masked_all
from allready.runtime.durations import duration
from allready.runtime.metrics.sinks import event_of, verdict_of

MAX_WAITING = 100


class Alert(Struct, frozen=True, kw_only=True):
    """What is sent.  `event`: "failed" (agreed by all ranks) or "out" (this rank is out of the job)."""

    event: str
    sentence: str
    time_s: float
    rank: int
    host: str
    attempt: str
    code: str | None = None
    fault_class: str | None = None
    culprits: tuple[int, ...] = ()
    world_size: int = 0


Hook = Callable[[Alert], object]
"""Notifies; may be slow and may raise."""


class Command:
    """A program that gets the alert as JSON on its standard input; ended when it takes too long."""

    def __init__(self, command: Sequence[str], *, timeout_s: float = 30.0) -> None:
        if isinstance(command, str) or not command:
            raise UsageError("give the command as a list of words; no shell reads it")
        self._command = list(command)
        self._timeout_s = duration(timeout_s, "timeout_s").total_seconds()

    def __call__(self, alert: Alert) -> None:
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
        )
        try:
            process.communicate(msgspec.json.encode(alert) + b"\n", timeout=self._timeout_s)
        finally:
            signal_group(process.pid, signal.SIGKILL)  # what it left behind, too
            end_child(process)
        if process.returncode:
            raise ChildProcessError(f"exit code {process.returncode}")


class Webhook:
    """An address that gets the alert by POST as JSON, with the sentence as "text" besides, which chats show."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 10.0) -> None:
        if not url.startswith(("https://", "http://")):
            raise UsageError("the address of a webhook begins with https:// or http://")
        self._url = url
        self._timeout_s = duration(timeout_s, "timeout_s").total_seconds()
        self._headers = {"Content-Type": "application/json", "User-Agent": "allready", **(headers or {})}

    def __call__(self, alert: Alert) -> None:
        body = msgspec.json.encode({"text": f"allready: {alert.sentence}", **msgspec.structs.asdict(alert)})
        request = urllib.request.Request(self._url, data=body, headers=self._headers, method="POST")  # noqa: S310
        opener = urllib.request.build_opener(_NoRedirect)
        with opener.open(request, timeout=self._timeout_s) as answer:
            answer.read(1)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The headers may hold a key, which is for this address only."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


class Teller:
    """Makes alerts of events, for a hook.

    Of an agreed failure the first survivor tells, so that one alert comes of it and not one of every rank.
    """

    def __init__(self, hook: Hook, begin: LogBegin, *, every_rank: bool) -> None:
        self._hook, self._begin, self._every_rank = hook, begin, every_rank

    def wants(self, line: LogLine) -> bool:
        """Whether it is worth an alert of this rank."""
        if isinstance(line, CallFailed):
            others = line.failure.survivors
            return self._every_rank or not others or others[0] == self._begin.rank
        return isinstance(line, RankOut)

    def __call__(self, line: LogLine) -> None:
        self._hook(self._alert(line))

    def _alert(self, line: LogLine) -> Alert:
        event, sentence = event_of(line) or ("", "")
        verdict = verdict_of(line) if isinstance(line, CallFailed) else None
        alert = Alert(
            event=event,
            sentence=sentence,
            time_s=line.time_s,
            rank=self._begin.rank,
            host=self._begin.host,
            attempt=self._begin.attempt,
            code=None if verdict is None else verdict.code,
            fault_class=None if verdict is None else str(verdict.fault_class),
            culprits=() if verdict is None else verdict.culprits.ranks,
            world_size=self._begin.world_size,
        )
        return masked_all(alert)
