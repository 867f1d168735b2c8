"""Start a job on this node: find out whether it leads, lead or follow, and tidy up whatever happens."""

import asyncio
import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from allready import __version__
from allready.agent.context import AgentContext
from allready.agent.control import Control
from allready.agent.coordinator import JobCoordinator, JobEnd, PortIsHeld
from allready.agent.participant import JobParticipant
from allready.agent.ports import free_port
from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.collect import collect
from allready.facts.host import Host
from allready.launch.file_rendezvous import Announcement
from allready.launch.request import Note, RunRequest
from allready.launch.syncdir import find_each_other
from allready.live.run_paths import make_run_dir, run_dirs
from allready.live.watch.attach import about
from allready.messaging.channel import Narrator
from allready.messaging.wire import ANY_RANK, PROTOCOL, Hello
from allready.model import LaunchFacts, NodeFacts, Report
from allready.preflight.check.inquiry import Inquiry
from allready.preflight.check.request import CheckRequest
from allready.preflight.check.waits import in_daemon_thread, say_exhaustion_once

COLLECT_S = 15.0
RESOLVE_S = 4.0


class Job:
    """One `allready run` on this node.  `run` once; `interrupt` from a signal handler of the event loop."""

    def __init__(
        self,
        request: RunRequest,
        host: Host,
        *,
        report_dir: Path,
        inquiry: Inquiry,
        show: Callable[[Report], None],
        say: Callable[[Note], None],
        on_start: Callable[[], None],
        narrator: Narrator,
    ) -> None:
        self.request = request
        self.report_dir = report_dir
        self._host = host
        self._inquiry = inquiry
        self._show, self._narrator = show, narrator
        self._say, self._on_start = say, on_start
        self.side: JobCoordinator | JobParticipant | None = None
        self._interrupted: str | None = None

    async def run(self) -> JobEnd:
        """The whole job as this node sees it."""
        say_exhaustion_once(asyncio.get_running_loop())
        request = self.request
        name = socket.gethostname()
        addresses = own_addresses()
        if {name, name.partition(".")[0], *addresses} & set(request.excluded_nodes):
            return JobEnd(exit_code=0, report=None, why=f"this node ({name}) takes no part: --exclude-nodes")
        instance = secrets.token_hex(8)
        _remove_stale_run_dirs()
        run_dir = make_run_dir(request.job_id)
        terms = AgentContext(
            request=request,
            name=name,
            instance=instance,
            run_dir=run_dir,
            report_dir=self.report_dir,
            show=self._show,
            say=self._say,
            on_start=self._on_start,
            addresses=addresses,
        )
        if request.framework != "jax":
            _preload_torch()
        control: Control | None = None
        own_facts: asyncio.Future[NodeFacts] | None = None
        try:
            if request.sync_dir is not None and "master_addr" not in request.sources:
                await self._meet_in_folder(request.sync_dir, name, terms.addresses)
                terms.request = request = self.request
            leads = await self._leads()
            launch = _launch_facts(request, leads=leads)
            check = CheckRequest(launch=launch, wait_s=request.wait_s, stages=("roll", "facts"))
            own_facts = asyncio.ensure_future(self._collect(check))
            try:
                control = await self._begin(terms, check, own_facts, leads=leads)
                return await self._side().run_job()
            except PortIsHeld:  # somebody of this machine was quicker: follow him
                await control.close() if control is not None else None
                check = dataclasses.replace(check, launch=_launch_facts(request, leads=False))
                control = await self._begin(terms, check, own_facts, leads=False)
                return await self._side().run_job()
        finally:
            if control is not None:
                await control.close()
            if own_facts is not None:
                own_facts.cancel()
            shutil.rmtree(run_dir, ignore_errors=True)

    async def _meet_in_folder(self, folder: str, name: str, addresses: tuple[str, ...]) -> None:
        """Learn from files in a shared folder where node 0 is and who this node is; `request` then says so."""
        request = self.request
        own = Announcement(
            host=name,
            nproc=request.nproc_per_node,
            num_nodes=request.max_nodes,
            pid=os.getpid(),
            addresses=addresses,
            job_id=request.job_id,
            node_rank=request.node_rank,
            start_rank=request.start_rank,
        )

        def missing(number: int, here: Sequence[str]) -> None:
            self._narrator.log(
                "run.sync_missing", missing=number, num_nodes=request.max_nodes, here=", ".join(here[:16]) or "-"
            )

        found = await find_each_other(
            folder,
            own,
            timeout_s=request.wait_s,
            choose_port=lambda: free_port(request.master_port),
            on_missing=missing,
        )
        self.request = dataclasses.replace(
            request, master_addr=found.master_addr, master_port=found.master_port, node_rank=found.node_rank
        )

    async def _begin(
        self, terms: AgentContext, check: CheckRequest, own_facts: "asyncio.Future[NodeFacts]", *, leads: bool
    ) -> Control:
        """Make this node's side of the job, and the socket for those who watch."""
        request, launch = self.request, check.launch
        hello = Hello(
            protocol=PROTOCOL,
            tool_version=__version__,
            name=terms.name,
            pid=os.getpid(),
            instance=terms.instance,
            node_rank=0 if leads else ANY_RANK if request.node_rank is None else request.node_rank,
            num_nodes=launch.num_nodes,
            nproc_per_node=launch.nproc_per_node,
            job_id=launch.job_id,
            master_addr=launch.master_addr,
        )
        if leads:
            lead = JobCoordinator(
                check,
                hello,
                own_facts,
                host=self._host,
                resolve=self._resolve,
                inquiry=self._inquiry,
                publish=self._show,
                narrator=self._narrator,
            )
            lead.equip(request, terms, yields=self._leads_by_agreement())
            self.side = lead
        else:
            member = JobParticipant(
                check,
                hello,
                own_facts,
                resolve=self._resolve,
                inquiry=self._inquiry,
                publish=self._show,
                narrator=self._narrator,
            )
            member.equip(request, terms)
            self.side = member
        if self._interrupted is not None:
            self.side.interrupt(self._interrupted)
        return await Control.open(terms.run_dir, terms, request, hello)

    def _side(self) -> JobCoordinator | JobParticipant:
        assert self.side is not None
        return self.side

    def _leads_by_agreement(self) -> bool:
        request = self.request
        return request.node_rank is None and request.is_master is None and request.max_nodes > 1

    def interrupt(self, name: str) -> bool:
        """A signal came.  True when the job ends in order by it; False when there is no job yet and the task should be
        cancelled."""
        self._interrupted = name
        side = self.side
        if isinstance(side, JobCoordinator) and side.stage == "job":
            side.interrupt(name)
            return True
        if isinstance(side, JobParticipant) and side.has_joined:
            side.interrupt(name)
            return True
        return False

    async def _leads(self) -> bool:
        """Whether this node is node 0: told so, or the master's address is its own and nobody of this job has it."""
        request = self.request
        if request.node_rank is not None:
            return request.node_rank == 0
        if request.is_master is not None:
            return request.is_master
        if request.max_nodes == 1:
            return True
        try:
            addresses = await self._resolve(request.master_addr)
        except FactUnavailable:
            return False
        return any(_is_local(address) for address in addresses)

    async def _resolve(self, wanted: str) -> tuple[str, ...]:
        try:
            return await in_daemon_thread(
                lambda: self._host.resolve(wanted, timeout_s=RESOLVE_S),
                timeout_s=RESOLVE_S + 1.0,
                what=f"resolving {wanted}",
            )
        except DeadlineExceeded as error:
            raise FactUnavailable(str(error)) from error

    async def _collect(self, check: CheckRequest) -> NodeFacts:
        if check.launch.num_nodes == 1:  # nothing to compare with, and the ranks want the processor now
            return replace(NodeFacts.none("one node: nothing to compare"), launch=check.launch)
        try:
            return await in_daemon_thread(
                lambda: collect(self._host, check.launch, script=None, deadline_s=COLLECT_S),
                timeout_s=COLLECT_S + 2.0,
                what="collecting facts",
            )
        except DeadlineExceeded as error:
            return replace(NodeFacts.none(str(error)), launch=check.launch)


def _remove_stale_run_dirs() -> None:
    """Run folders of agents that were killed together with the keeper that should have removed them."""
    for folder in run_dirs():
        try:
            pid = int(json.loads((folder / "job.json").read_bytes()[:65536])["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # just being made, or not an agent's
        if about(folder) is None and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _preload_torch() -> None:
    """Import torch's launcher beside the roll call: it takes about a second.  What fails is told when it is needed."""

    def load() -> None:
        from allready.launch.elastic import preload

        with contextlib.suppress(Exception):
            preload()

    threading.Thread(target=load, name="allready-preload", daemon=True).start()


def _launch_facts(request: RunRequest, *, leads: bool) -> LaunchFacts:
    """The request as facts of the roll call; a node that leaves its rank to node 0 is judged as node 1 till then."""
    return LaunchFacts(
        num_nodes=request.max_nodes,
        node_rank=0 if leads else 1 if request.node_rank is None else request.node_rank,
        nproc_per_node=request.nproc_per_node,
        master_addr=request.master_addr,
        master_port=request.master_port,
        job_id=request.job_id,
        scheduler=request.scheduler,
        devices=request.devices,
        framework=request.framework,
    )


def own_addresses() -> tuple[str, ...]:
    """All addresses of this node but loopback and link-local ones, as `ip addr` shows them."""
    from allready.facts.netlink import interfaces

    try:
        rows: Sequence[dict[str, Any]] = interfaces(timeout_s=1.0)
    except FactUnavailable:
        return ()
    found = [str(a).partition("/")[0] for row in rows for a in row["addresses"]]
    return tuple(a for a in found if not a.startswith(("127.", "fe80:")) and a != "::1")


def _is_local(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True


def default_report_dir(job_id: str, base: str | None = None) -> Path:
    """`allready-runs/JOB-TIME` in the working directory, or JOB-TIME below `base`; the id is made safe for a name."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in job_id)[:60] or "job"
    return Path(base or "allready-runs") / f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
