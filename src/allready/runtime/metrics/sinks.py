"""Where counts and events go besides the event log: each needs its own package, imported when it is opened.

A sink works in a thread of its own; whatever it does, training goes on.
"""

import importlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from allready.errors import UsageError
from allready.exposition import metric
from allready.model import CallFailed, Counted, GroupFormed, LogBegin, LogLine, RankOut, RuntimeCounts, Verdict
from allready.redaction import masked_all


class Sink(Protocol):
    """One destination.  `open` is called by `start`, in its thread; the others in the sink's thread."""

    def open(self, begin: LogBegin) -> None:
        """Get ready to write for this rank."""

    def write(self, line: LogLine) -> None:
        """One event."""

    def close(self) -> None:
        """No more events."""


def scalars(counts: RuntimeCounts) -> Iterator[tuple[str, float]]:
    """What is drawn as curves: names as W&B and TensorBoard have them, in seconds."""
    yield "allready/failures", counts.failures
    yield "allready/timeouts", counts.timeouts
    yield "allready/recoveries", counts.recoveries
    yield "allready/retries", counts.retries
    for name, found in counts.operations.items():
        yield f"allready/{name}/calls", found.calls
        yield f"allready/{name}/median_s", found.median_s
        yield f"allready/{name}/p99_s", found.p99_s
        yield f"allready/{name}/longest_s", found.longest_s
    for lag in counts.lags:
        for rank, share in lag.last_share.items():
            yield f"allready/{lag.group}/last_share/rank{rank}", share


def _package(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            "this needs a package that is not installed: pip install {package}", package=package
        ) from error


class TensorBoard:
    """Curves of every rank in a folder of its own below `folder`, over the seconds since the start."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._begin_s = 0.0
        self._writer: Any = None

    def open(self, begin: LogBegin) -> None:
        _package("tensorboard", "tensorboard")
        self._begin_s = begin.time_s
        tensorboard = importlib.import_module("torch.utils.tensorboard")
        self._writer = tensorboard.SummaryWriter(str(self._folder / f"rank{begin.rank}"))

    def write(self, line: LogLine) -> None:
        at = round(line.time_s - self._begin_s)
        if isinstance(line, Counted):
            for name, value in scalars(line.counts):
                self._writer.add_scalar(name, value, global_step=at, walltime=line.time_s)
        elif (text := event_of(line)) is not None:
            self._writer.add_text(f"allready/{text[0]}", text[1], global_step=at, walltime=line.time_s)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandB:
    """Curves and failures in a run of Weights & Biases.

    Args:
        run: that of the script; by default one of our own, which is offline unless `options` say otherwise.
        options: of `wandb.init`.
    """

    def __init__(self, run: Any = None, **options: Any) -> None:
        self._run, self._options = run, options
        self._is_own = run is None

    def open(self, begin: LogBegin) -> None:
        if self._is_own:
            wandb = _package("wandb", "wandb")
            name = f"{begin.attempt}-rank{begin.rank}"
            self._run = wandb.init(**{"mode": "offline", "project": "allready", "name": name} | self._options)

    def write(self, line: LogLine) -> None:
        if isinstance(line, Counted):
            self._run.log(dict(scalars(line.counts)))
        elif (text := event_of(line)) is not None:
            self._run.log({f"allready/{text[0]}": text[1]})

    def close(self) -> None:
        if self._is_own:
            self._run.finish()


class OpenTelemetry:
    """A log record for every failure, recovery and exit of a rank, with what is known as attributes.

    Args:
        provider: a `LoggerProvider`; by default the global one.
    """

    def __init__(self, provider: Any = None) -> None:
        self._provider = provider
        self._rank = 0
        self._api: Any = None
        self._logger: Any = None

    def open(self, begin: LogBegin) -> None:
        self._api = _package("opentelemetry._logs", "opentelemetry-sdk")
        self._rank = begin.rank
        provider = self._provider or self._api.get_logger_provider()
        self._logger = provider.get_logger("allready")

    def write(self, line: LogLine) -> None:
        text = event_of(line)
        if text is None:
            return
        kind, sentence = text
        is_error = not isinstance(line, GroupFormed)
        attributes: dict[str, Any] = {"allready.rank": self._rank, "allready.event": kind}
        if isinstance(line, CallFailed):
            verdict = verdict_of(line)
            attributes |= {"allready.epoch": line.failure.epoch, "allready.cause": str(line.failure.cause)}
            if verdict is not None:
                attributes |= {"allready.code": verdict.code, "allready.culprits": list(verdict.culprits.ranks)}
        severity = self._api.SeverityNumber.ERROR if is_error else self._api.SeverityNumber.INFO
        record = self._api.LogRecord(
            timestamp=int(line.time_s * 1e9),
            observed_timestamp=int(line.time_s * 1e9),
            severity_number=severity,
            severity_text="ERROR" if is_error else "INFO",
            body=sentence,
            attributes=attributes,
        )
        self._logger.emit(record)

    def close(self) -> None:
        pass


class PrometheusFile:
    """A file for node_exporter's textfile collector, which always is whole; needs no package."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def open(self, begin: LogBegin) -> None:
        del begin

    def write(self, line: LogLine) -> None:
        if isinstance(line, Counted):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            half = self._path.with_name(f".{self._path.name}.tmp")
            half.write_text(exposition(line.counts), encoding="utf-8")
            half.replace(self._path)

    def close(self) -> None:
        pass


class Prometheus:
    """An address at which Prometheus gets what was counted last.

    Args:
        port: to listen on; each rank of a node needs one of its own.
        host: by default this machine alone can ask.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._port, self._host = port, host
        self._counts: RuntimeCounts | None = None
        self._stack = ExitStack()

    def open(self, begin: LogBegin) -> None:
        del begin
        client = _package("prometheus_client", "prometheus-client")
        registry = client.CollectorRegistry()
        registry.register(self)
        server, thread = client.start_http_server(self._port, addr=self._host, registry=registry)
        self._port = server.server_port
        self._stack.callback(thread.join, 2.0)
        self._stack.callback(server.server_close)
        self._stack.callback(server.shutdown)

    @property
    def port(self) -> int:
        """It listens on; of port 0 the one that was free."""
        return self._port

    def collect(self) -> Iterator[Any]:
        """What the package asks for at each visit."""
        core = importlib.import_module("prometheus_client.core")
        counts = self._counts
        if counts is None:
            return
        for name, about, kind, rows in families(counts):
            family = (core.CounterMetricFamily if kind == "counter" else core.GaugeMetricFamily)(
                f"allready_{name}", about, labels=list(rows[0][0])
            )
            for labels, value in rows:
                family.add_metric(list(labels.values()), value)
            yield family
        latencies = core.HistogramMetricFamily("allready_call_seconds", _LATENCIES, labels=["rank", "operation"])
        for operation, found in counts.operations.items():
            buckets = [(f"{bound:g}", float(num)) for bound, num in found.calls_within_s]
            buckets.append(("+Inf", float(found.calls)))
            latencies.add_metric([str(counts.rank), operation], buckets, found.total_s)
        yield latencies

    def write(self, line: LogLine) -> None:
        if isinstance(line, Counted):
            self._counts = line.counts

    def close(self) -> None:
        self._stack.close()


_LATENCIES = "How long calls took, failed ones included"
Rows = list[tuple[dict[str, str], float]]


def families(counts: RuntimeCounts) -> Iterator[tuple[str, str, str, Rows]]:
    """Name, meaning, kind and rows of every metric but the latencies."""
    rank = {"rank": str(counts.rank)}
    yield "failures_total", "Agreed failures of the job", "counter", [(rank, counts.failures)]
    yield "timeouts_total", "Failures because a deadline passed", "counter", [(rank, counts.timeouts)]
    yield "recoveries_total", "How often the group formed again", "counter", [(rank, counts.recoveries)]
    yield "recovering_seconds_total", "Time that forming it again took", "counter", [(rank, counts.recovering_s)]
    yield (
        "retries_total",
        "How often an evaluation, or a batch of one, was tried again",
        "counter",
        [(rank, counts.retries)],
    )
    yield "world_size", "Ranks in the group", "gauge", [(rank, counts.world_size)]
    about = "Events that found no room, or that a sink failed at"
    yield "events_dropped_total", about, "counter", [(rank, counts.dropped)]
    by_operation = [(rank | {"operation": name}, found) for name, found in counts.operations.items()]
    if by_operation:
        rows: Rows = [(labels, found.failures) for labels, found in by_operation]
        yield "call_failures_total", "Calls that failed", "counter", rows
        rows = [(labels, found.timeouts) for labels, found in by_operation]
        yield "call_timeouts_total", "Calls that failed because a deadline passed", "counter", rows
    late: Rows = [
        ({"rank": str(r), "operation": lag.group}, share) for lag in counts.lags for r, share in lag.last_share.items()
    ]
    if late:
        yield "last_share", "Share of the compared calls to which a rank came last", "gauge", late


def exposition(counts: RuntimeCounts) -> str:
    """Everything in Prometheus' text format."""
    return "\n".join(_lines(counts)) + "\n"


def _lines(counts: RuntimeCounts) -> Iterator[str]:
    for name, about, kind, rows in families(counts):
        yield from metric(name, about, [(_labels(labels), value) for labels, value in rows], kind=kind)
    if counts.operations:
        yield f"# HELP allready_call_seconds {_LATENCIES}"
        yield "# TYPE allready_call_seconds histogram"
    for operation, found in counts.operations.items():
        labels = f'rank="{counts.rank}",operation="{operation}"'
        for bound, num in found.calls_within_s:
            yield f'allready_call_seconds_bucket{{{labels},le="{bound:g}"}} {num}'
        yield f'allready_call_seconds_bucket{{{labels},le="+Inf"}} {found.calls}'
        yield f"allready_call_seconds_sum{{{labels}}} {found.total_s}"
        yield f"allready_call_seconds_count{{{labels}}} {found.calls}"


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def verdict_of(line: CallFailed) -> Verdict | None:
    """Who is at fault, by the judge of all commands."""
    from allready.runtime.judgement import verdict_on

    return verdict_on(line.failure)


def event_of(line: LogLine) -> tuple[str, str] | None:
    """Kind and sentence of what a person wants to know, without what looks like a secret; None for the rest."""
    found: tuple[str, str] | None = None
    match line:
        case CallFailed():
            verdict = verdict_of(line)
            cause = f"a collective failed ({line.failure.cause})"
            found = ("failed", cause if verdict is None else f"{verdict.code}: {verdict.sentence}")
        case RankOut():
            found = ("out", f"{line.kind}: {line.text}")
        case GroupFormed():
            ranks = ", ".join(map(str, line.members))
            found = ("recovered", f"the group formed again in {line.took_s:.3f} s, of ranks {ranks}")
    return masked_all(found)
