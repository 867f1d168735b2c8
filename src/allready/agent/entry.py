"""Start a job on this node: find out whether it coordinates, coordinate or take part, and tidy up whatever happens."""

import asyncio
import contextlib
import importlib
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from allready.agent.closing import closed, leave_for_relay
from allready.agent.context import AgentContext, AgentState
from allready.agent.control import Control
from allready.agent.coordinator import JobCoordinator, JobEnd, PortIsHeld, free_port
from allready.agent.node_report import NodeReport
from allready.agent.participant import JobParticipant
from allready.agent.shared_folder import Node, SharedFolder
from allready.errors import FactUnavailable
from allready.facts.host import Host
from allready.launch.identity import own_addresses
from allready.launch.layout import FIELDS
from allready.launch.outcome import code_of_stop
from allready.launch.request import Note, RunRequest
from allready.live.run_paths import make_run_dir, run_dirs
from allready.live.watch.attach import agent_of, described, is_alive
from allready.messaging.channel import Narrator
from allready.messaging.token import Token
from allready.messaging.wire import hello_of
from allready.model import EndCause, JobOutcome, LaunchFacts, NodeFacts, Report, UncheckedKind
from allready.model.fill import said
from allready.preflight.check.context import CheckContext, collect_facts, resolve
from allready.preflight.check.report_series import ReportSeries
from allready.preflight.check.request import CheckRequest
from allready.preflight.check.roll_call import is_local
from allready.preflight.check.waits import say_exhaustion_once
from allready.proc.process import is_running
from allready.text.reasons import reason

if TYPE_CHECKING:
    from allready.live.watch.metrics import MetricsServer


class NodeJob(Struct):
    """One `allready run` on this node.  `run` once; `interrupt` from a signal handler of the event loop.

    `report_path`: where `show` writes reports, without the ending.  `sides`: this node's part of the job, and a second
    one where another node of this machine coordinates already.  `token`: shared by the job's nodes, if there is one.
    """

    request: RunRequest
    host: Host
    report_dir: Path
    report_series: ReportSeries
    show: Callable[[Report], None]
    say: Callable[[Note], None]
    on_start: Callable[[], None]
    narrator: Narrator
    report_path: Callable[[], Path]
    token: Token | None = None
    sides: list[JobCoordinator | JobParticipant] = []

    async def run(self) -> JobEnd:
        say_exhaustion_once(asyncio.get_running_loop())
        _remove_stale_run_dirs()
        run_dir = make_run_dir(self.request.job_id)
        try:
            return await self._run_in(run_dir)
        finally:
            shutil.rmtree(run_dir, ignore_errors=True)

    def interrupted(self, signal: str) -> JobEnd:
        """The end of a job that was cancelled by a signal before any rank ran."""
        job = JobOutcome(exit_code=code_of_stop(signal), outcome=EndCause.STOPPED, attempts=0)
        report = self.report_series.interrupted("roll", reason(UncheckedKind.INTERRUPTED, signal=signal, stage="roll"))
        return JobEnd(job=job, report=closed(report, job), why=said("ended by {signal}", signal=signal))

    async def _run_in(self, run_dir: Path) -> JobEnd:
        request = self.request
        if request.sync_dir is None or "master_addr" in request.sources:
            return await self._run_known(request, run_dir, on_start=self.on_start)
        self._preload()
        async with self._shared_folder(request.sync_dir) as folder:

            def on_start() -> None:
                folder.release()
                self.on_start()

            found = await folder.find_node_0(
                timeout_s=request.wait_s, choose_port=lambda: free_port(request.master_port)
            )
            request = replace(
                request, master_addr=found.address, master_port=found.port, node_rank=found.node_rank, is_master=False
            )
            return await self._run_known(request, run_dir, on_start=on_start)

    async def _run_known(self, request: RunRequest, run_dir: Path, *, on_start: Callable[[], None]) -> JobEnd:
        """The job, where it is known how to find node 0."""
        agent = AgentContext(
            request=request,
            name=socket.gethostname(),
            instance=secrets.token_hex(8),
            run_dir=run_dir,
            report_dir=self.report_dir,
            addresses=own_addresses(),
            say=self.say,
            on_meeting=self._preload,
            on_start=on_start,
            state=AgentState(reports=NodeReport(lambda report: self._publish(report, run_dir))),
        )
        coordinates = await self._coordinates(request)
        own_facts = asyncio.ensure_future(self._collect(_check_request(request, coordinates=coordinates)))
        try:
            try:
                return await self._take_part(agent, own_facts, coordinates=coordinates)
            except PortIsHeld:  # another agent of this machine was quicker: take part in its job
                return await self._take_part(agent, own_facts, coordinates=False)
        finally:
            own_facts.cancel()

    async def _take_part(
        self, agent: AgentContext, own_facts: "asyncio.Future[NodeFacts]", *, coordinates: bool
    ) -> JobEnd:
        request = agent.request
        orders = _check_request(request, coordinates=coordinates)
        may_choose = request.node_rank is None and not coordinates
        check = CheckContext(
            request=orders,
            hello=hello_of(orders.launch, name=agent.name, instance=agent.instance, may_choose=may_choose),
            own_facts=own_facts,
            host=self.host,
            report_series=self.report_series,
            publish=agent.state.reports.publish,
            narrator=self.narrator,
            token=self.token,
        )
        yields = request.node_rank is None and request.is_master is None and request.max_nodes > 1
        side = JobCoordinator(check, agent, yields=yields) if coordinates else JobParticipant(check, agent)
        self.sides.append(side)
        control = Control(agent, check.hello)
        metrics: MetricsServer | None = None
        try:
            await control.open()
            if coordinates and request.metrics_port is not None:
                from allready.agent.metrics import serve_metrics  # an HTTP server, for those who ask for one

                metrics = serve_metrics(agent, control.about)
            return await side.run_job()
        finally:
            if metrics is not None:
                metrics.close()
            await control.close()

    def _preload(self) -> None:
        if self.request.framework != "jax":
            _preload_torch()

    def _publish(self, report: Report, run_dir: Path) -> None:
        """Show a report, and leave one for the case that this agent is killed."""
        leave_for_relay(run_dir, self.report_path().with_suffix(".json"), report)
        self.show(report)

    def _shared_folder(self, folder: str) -> SharedFolder:
        request, addresses = self.request, own_addresses()
        own = Node(
            host=socket.gethostname(),
            num_nodes=request.max_nodes,
            pid=os.getpid(),
            address=addresses[0] if addresses else "",
            node_rank=request.node_rank,
        )

        def missing(number: int, here: Sequence[str]) -> None:
            self.narrator.log(
                "run.sync_missing", missing=number, num_nodes=request.max_nodes, here=", ".join(here[:16]) or "-"
            )

        return SharedFolder(folder, request.job_id, own, on_missing=missing)

    def interrupt(self, name: str) -> bool:
        """A signal came.  True when the job ends in order by it; False when there is no job yet and the task should be
        cancelled."""
        side = self.sides[-1] if self.sides else None
        if side is None or not side.can_be_interrupted:
            if isinstance(side, JobCoordinator):
                side.cancelled_by = name
            return False
        side.interrupt(name)
        return True

    def pass_on(self, name: str) -> None:
        """A signal that ends nothing came: the ranks get it."""
        for side in self.sides[-1:]:
            side.pass_on(name)

    async def _coordinates(self, request: RunRequest) -> bool:
        """Whether this node is node 0: by its rank, or the master's address is its own and no other agent has it."""
        if request.node_rank is not None:
            return request.node_rank == 0
        if request.is_master is not None:
            return request.is_master
        if request.max_nodes == 1:
            return True
        try:
            addresses = await resolve(self.host, request.master_addr)
        except FactUnavailable:
            return False
        return any(is_local(address) for address in addresses)

    async def _collect(self, check: CheckRequest) -> NodeFacts:
        if check.launch.num_nodes == 1:  # nothing to compare with, and the ranks want the processor now
            return replace(NodeFacts.none("one node: nothing to compare"), launch=check.launch)
        return await collect_facts(self.host, check)


def _check_request(request: RunRequest, *, coordinates: bool) -> CheckRequest:
    """The roll call's part; a node that leaves its rank to node 0 is judged as node 1 till then."""
    launch = LaunchFacts(
        num_nodes=request.max_nodes,
        node_rank=0 if coordinates else 1 if request.node_rank is None else request.node_rank,
        nproc_per_node=request.nproc_per_node,
        master_addr=request.master_addr,
        master_port=request.master_port,
        job_id=request.job_id,
        scheduler=request.scheduler,
        devices=request.devices,
        framework=request.framework,
        sources={name: source for name, source in request.sources.items() if name in FIELDS},
    )
    return CheckRequest(launch=launch, wait_s=request.wait_s, stages=("roll", "facts"))


def _remove_stale_run_dirs() -> None:
    """Run folders of agents that were killed together with the log relay that should have removed them."""
    for folder in run_dirs():
        job = described(folder)  # None: just being made, or not an agent's
        if job is not None and not is_alive(job) and not is_running(agent_of(job)):
            shutil.rmtree(folder, ignore_errors=True)


def _preload_torch() -> None:
    """Import torch's launcher during the roll call: it takes a second.  A failure is reported when it is needed."""

    def load() -> None:
        with contextlib.suppress(Exception):
            importlib.import_module("allready.launch.elastic_agent")

    with contextlib.suppress(RuntimeError):  # a limit of processes
        threading.Thread(target=load, name="allready-preload", daemon=True).start()


def is_excluded(request: RunRequest) -> bool:
    """Whether --exclude-nodes names this node, by name or address."""
    name = socket.gethostname()
    return bool({name, name.partition(".")[0], *own_addresses()} & set(request.excluded_nodes))


def default_report_dir(job_id: str, base: str | None = None) -> Path:
    """`allready-runs/JOB-TIME` in the working directory, or JOB-TIME below `base`; the id is made safe for a name."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in job_id)[:60] or "job"
    return Path(base or "allready-runs") / f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
