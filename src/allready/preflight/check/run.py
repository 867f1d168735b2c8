"""Start a check on this node: collect facts beside the roll call, lead or follow."""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from allready import __version__
from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.collect import collect
from allready.facts.host import Host
from allready.messaging.channel import Narrator
from allready.messaging.wire import PROTOCOL, Hello
from allready.model import NodeFacts, Report
from allready.preflight.check.coordinator import Coordinator
from allready.preflight.check.inquiry import Inquiry
from allready.preflight.check.participant import Participant
from allready.preflight.check.request import CheckRequest
from allready.preflight.check.waits import in_daemon_thread, say_exhaustion_once

COLLECT_S = 15.0
RESOLVE_S = 4.0


async def check(
    request: CheckRequest,
    host: Host,
    *,
    name: str,
    instance: str,
    inquiry: Inquiry,
    publish: Callable[[Report], None],
    narrator: Narrator,
    where: Callable[[Callable[[], str]], None],
) -> Report:
    """One check on this node, from the first try to the final report.

    Args:
        request: what to do.
        host: this machine.
        name: this node's name in messages.
        instance: random; tells this process from any other.
        inquiry: keeps the standing verdict, also for a caller that interrupts.
        publish: gets every report, interim and final.
        narrator: gets the live lines.
        where: is given a function that says which stage the check is in.
    """
    launch = request.launch
    say_exhaustion_once(asyncio.get_running_loop())
    own_facts = asyncio.ensure_future(_collect(request, host))
    hello = Hello(
        protocol=PROTOCOL,
        tool_version=__version__,
        node_rank=launch.node_rank,
        name=name,
        pid=_own_pid(),
        num_nodes=launch.num_nodes,
        nproc_per_node=launch.nproc_per_node,
        job_id=launch.job_id,
        master_addr=launch.master_addr,
        instance=instance,
    )

    async def resolve(wanted: str) -> tuple[str, ...]:
        try:
            return await in_daemon_thread(
                lambda: host.resolve(wanted, timeout_s=RESOLVE_S), timeout_s=RESOLVE_S + 1.0, what=f"resolving {wanted}"
            )
        except DeadlineExceeded as error:
            raise FactUnavailable(str(error)) from error

    try:
        side: Coordinator | Participant
        if launch.node_rank == 0:
            side = Coordinator(
                request,
                hello,
                own_facts,
                host=host,
                resolve=resolve,
                inquiry=inquiry,
                publish=publish,
                narrator=narrator,
            )
        else:
            side = Participant(
                request, hello, own_facts, resolve=resolve, inquiry=inquiry, publish=publish, narrator=narrator
            )
        where(lambda: side.stage)
        return await side.run()
    finally:
        own_facts.cancel()


async def _collect(request: CheckRequest, host: Host) -> NodeFacts:
    try:
        return await in_daemon_thread(
            lambda: collect(host, request.launch, script=request.script, deadline_s=COLLECT_S),
            timeout_s=COLLECT_S + 2.0,
            what="collecting facts",
        )
    except DeadlineExceeded as error:
        return replace(NodeFacts.none(str(error)), launch=request.launch)


def _own_pid() -> int:
    import os

    return os.getpid()
