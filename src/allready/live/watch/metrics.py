"""The state of a job for Prometheus: text format 0.0.4, and the small server that gives it.

Names follow the conventions (base units, `_total` for counters).  The server binds to loopback unless configured
otherwise, answers GET /metrics and nothing else, and gives the newest state: it never samples itself.
"""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from allready.exposition import escape, metric
from allready.live.watch.state import WatchState, ages_s
from allready.model import RankStatus, Report, Status, ranges
from allready.model.addresses import endpoint

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_S = 5.0
MAX_CONNECTIONS = 16
MAX_CULPRITS = 64

_GAUGES: tuple[tuple[str, str, Callable[[RankStatus], float | None]], ...] = (
    ("cpu_share", "CPU seconds per second of the rank's own process", lambda r: r.cpu_share),
    ("beat_age_seconds", "Age of the beacon's last sign of life", lambda r: r.heartbeat_age_s),
    ("period_seconds", "Median time between operations of the busiest group", lambda r: r.period_s),
    ("waiting_seconds", "For how long the oldest pending operation has waited",
     lambda r: max((m.waiting_s for m in r.groups if m.waiting_s is not None), default=None)),
    ("memory_bytes", "Resident memory", lambda r: None if r.rss_bytes is None else float(r.rss_bytes)),
    ("gpu_busy_share", "GPU utilisation as NVML gives it", lambda r: r.gpu_busy_share),
    ("gpu_power_watts", "GPU power", lambda r: r.gpu_power_w),
    ("throttled_share", "Share of time in which the CPU quota held the rank back", lambda r: r.throttled_share),
)  # fmt: skip


def exposition(state: WatchState, *, is_answering: bool = True) -> str:
    """All metrics of one state.

    Args:
        is_answering: whether the state is the present; of a job that does not answer only that is exported, and since
        when.
    """
    return "\n".join(_lines(state, is_answering)) + "\n"


def _lines(state: WatchState, is_answering: bool) -> Iterator[str]:
    job = f'job_id="{escape(state.job.job_id)}"'  # Prometheus has a label "job" of its own
    yield from metric("up", "Whether the job could be sampled", [(job, int(is_answering))])
    yield from metric("look_timestamp_seconds", "When the job was last seen", [(job, repr(state.now_s))])
    if not is_answering:
        return
    ranks = [(f'{job},node="{s.node_rank}",rank="{r.rank}"', r) for s in state.statuses for r in s.ranks]
    for name, about, value_of in _GAUGES:
        rows = [(labels, repr(value)) for labels, r in ranks if (value := value_of(r)) is not None]
        yield from metric(f"rank_{name}", about, rows)
    counted = [(labels, r.num_operations) for labels, r in ranks if r.groups]  # of others it is not known
    yield from metric("rank_operations_total", "Collective operations enqueued, all groups", counted, kind="counter")
    info = [(f'{labels},state="{escape(r.process_state)}",phase="{escape(r.phase)}"', 1) for labels, r in ranks]
    yield from metric("rank_info", "State and phase of a rank; always 1", info)
    ages = [
        (f'{job},node="{node}"', repr(age_s)) for node, age_s in sorted(ages_s(state.statuses, state.now_s).items())
    ]
    yield from metric("node_status_age_seconds", "Age of a node's newest status", ages)
    if state.report is not None:
        yield from _verdict(state.report, job, {r.rank: s.node_rank for s in state.statuses for r in s.ranks})


def _verdict(report: Report, job: str, node_of: Mapping[int, int]) -> Iterator[str]:
    """Whether there is a fault and who is at fault; one row each for alerts that name the rank."""
    verdict, is_fault = report.verdict, report.status is Status.FAULT
    if verdict is None:
        yield from metric("fault", "Whether the verdict is a fault", [(job, int(is_fault))])
        return
    kind = f'{job},code="{escape(verdict.code)}",class="{escape(str(verdict.fault_class))}"'
    nodes_of = {rank: node.node_rank for node in report.world.nodes for rank in node.ranks} | dict(node_of)
    ranks, nodes = verdict.culprits.ranks, verdict.culprits.nodes
    nodes = nodes or tuple(sorted({nodes_of[rank] for rank in ranks if rank in nodes_of}))
    labels = f'{kind},confidence="{verdict.confidence}",nodes="{ranges(nodes)}",ranks="{ranges(ranks)}"'
    yield from metric("fault", "Whether the verdict is a fault", [(labels, int(is_fault))])
    if is_fault:
        rows = [(f'{kind},node="{nodes_of.get(rank, "")}",rank="{rank}"', 1) for rank in ranks[:MAX_CULPRITS]]
        if not ranks:
            rows = [(f'{kind},node="{node}",rank=""', 1) for node in nodes[:MAX_CULPRITS]]
        yield from metric("culprit", "A rank, or a whole node, at fault; always 1", rows)


class _Handler(BaseHTTPRequestHandler):
    """GET /metrics, and nothing else."""

    timeout = REQUEST_S
    server: "_Server"

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = self.server.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """A line per scrape is of no use."""


class _Server(ThreadingHTTPServer):
    """At most `MAX_CONNECTIONS` at a time; a client that goes away is ignored."""

    daemon_threads = True

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int], text: Callable[[], str]) -> None:
        self.address_family = family
        self.text = text
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """As the base class, without asking the resolver for our own name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing on the terminal, which may show the table."""


class MetricsServer:
    """Serves `text()` at http://HOST:PORT/metrics from threads of its own; `close` ends them."""

    def __init__(self, text: Callable[[], str], *, port: int, host: str = "127.0.0.1") -> None:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        except UnicodeError as error:
            raise OSError(f"no address: {host}") from error
        self._server = _Server(family, (host, port), text)
        self.port = int(self._server.server_address[1])
        self.url = f"http://{endpoint(host, self.port)}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="allready-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(REQUEST_S)
