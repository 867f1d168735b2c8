"""What both sides of a roll call work with: made once, when a command begins on a node."""

import asyncio
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.collect import collect
from allready.facts.host import Host
from allready.messaging.channel import Narrator
from allready.messaging.token import Token
from allready.messaging.wire import NodeHello
from allready.model import LaunchFacts, NodeFacts, Report
from allready.model.fill import said
from allready.preflight.check.report_series import ReportSeries
from allready.preflight.check.request import CheckRequest
from allready.preflight.check.waits import in_daemon_thread

COLLECT_S = 15.0
RESOLVE_S = 4.0
REPORT_FROM_S = 2.0  # from here on every node is informed who is awaited
REPEAT_S = 5.0
LAST_FACTS_S = 3.0
"""At the end a collector that is stuck in a driver is waited for no longer than this."""

Publish = Callable[[Report], None]


class CheckContext(Struct, frozen=True, kw_only=True):
    """One per command and node.  `own_facts` is being collected; `publish` gets every report, interim and final;
    `token` is shared by the job's nodes, if the user gave one."""

    request: CheckRequest
    hello: NodeHello
    own_facts: asyncio.Future[NodeFacts]
    host: Host
    report_series: ReportSeries
    publish: Publish
    narrator: Narrator
    token: Token | None = None

    @property
    def launch(self) -> LaunchFacts:
        return self.request.launch

    async def facts_within(self, timeout_s: float) -> NodeFacts:
        """This node's facts; facts that say so where they are not collected in time."""
        await asyncio.wait({self.own_facts}, timeout=timeout_s)
        if self.own_facts.done():
            return self.own_facts.result()
        return replace(NodeFacts.none("still being collected"), launch=self.launch)

    async def resolve(self, name: str) -> tuple[str, ...]:
        return await resolve(self.host, name)


async def resolve(host: Host, name: str) -> tuple[str, ...]:
    """Addresses of a host, best first.

    Raises:
        FactUnavailable: the name does not resolve, or not in time.
    """
    try:
        return await in_daemon_thread(
            lambda: host.resolve(name, timeout_s=RESOLVE_S), timeout_s=RESOLVE_S + 1.0, what=f"resolving {name}"
        )
    except DeadlineExceeded as error:
        raise FactUnavailable("{error}", error=error) from error


async def collect_facts(host: Host, request: CheckRequest) -> NodeFacts:
    """This node's facts; where the machine hangs, facts that say so."""
    try:
        return await in_daemon_thread(
            lambda: collect(host, request.launch, script=request.script, deadline_s=COLLECT_S),
            timeout_s=COLLECT_S + 2.0,
            what="collecting facts",
        )
    except DeadlineExceeded as error:
        return replace(NodeFacts.none(said("{error}", error=error)), launch=request.launch)
