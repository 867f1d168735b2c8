"""Start a check on this node: collect facts beside the roll call, coordinate or take part."""

import asyncio
from collections.abc import Callable

from allready.facts.host import Host
from allready.messaging.channel import Narrator
from allready.messaging.token import Token
from allready.messaging.wire import hello_of
from allready.model import Report
from allready.preflight.check.context import CheckContext, Publish, collect_facts
from allready.preflight.check.coordinator import Coordinator
from allready.preflight.check.participant import Participant
from allready.preflight.check.report_series import ReportSeries
from allready.preflight.check.request import CheckRequest
from allready.preflight.check.waits import say_exhaustion_once


async def check(
    request: CheckRequest,
    host: Host,
    *,
    name: str,
    instance: str,
    report_series: ReportSeries,
    publish: Publish,
    narrator: Narrator,
    where: Callable[[Callable[[], str]], None],
    token: Token | None = None,
) -> Report:
    """One check on this node, from the first try to the final report.

    Args:
        instance: random; tells this process from any other.
        report_series: keeps the standing verdict, also for a caller that interrupts.
        where: is given a function that says which stage the check is in.
        token: shared by all nodes, if the user gave one.
    """
    launch = request.launch
    say_exhaustion_once(asyncio.get_running_loop())
    own_facts = asyncio.ensure_future(collect_facts(host, request))
    context = CheckContext(
        request=request,
        hello=hello_of(launch, name=name, instance=instance),
        own_facts=own_facts,
        host=host,
        report_series=report_series,
        publish=publish,
        narrator=narrator,
        token=token,
    )
    side = Coordinator(context) if launch.node_rank == 0 else Participant(context)
    where(lambda: side.stage)
    try:
        return await side.run()
    finally:
        own_facts.cancel()
