"""A node's part of the reachability stage, from "reach.open" to "reach.done"."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from allready.errors import ExchangeError
from allready.messaging.channel import Narrator, NodeSide, convert
from allready.messaging.sockets import local_addresses
from allready.model import NodeFacts, TransportFacts
from allready.model.fill import said, texts
from allready.preflight.reach import wire
from allready.preflight.reach.endpoint import Endpoint
from allready.preflight.reach.partner import PartnerProbe

log = logging.getLogger(__name__)

MAX_NODES_WITH_ALL_ROWS = 64
PLAN_S = 60.0
"""How long a node waits for its plan; node 0's own wait for slow nodes is far shorter."""
END_S = 60.0
"""How long after its own limit a node waits for the others' end."""
IN_FLIGHT_S = 0.02
"""Before telling which datagrams arrived: for the last ones to arrive."""
QUEUED_IN_FLIGHT_S = 0.5
"""The same after a burst over paths that lose packets, perhaps through a queue that is still long."""
LAST_BURST_S = 0.25
MAX_LAST_BURSTS_S = 3.0
"""The last bursts go out round by round, each with its time, so that no node gets those of all others at once."""
COUNT_S = 4.0
"""How long a node sends last bursts; less than node 0 waits for its answer."""


async def take_part(node: NodeSide, start: Any, facts: NodeFacts, narrator: Narrator) -> None:
    """Open listeners, probe the partners that node 0 names, report; returns at "reach.done".

    Every node calls it, node 0 too, when it has received "reach.open".  All ports are closed afterwards, whatever
    happened.

    Args:
        facts: only `transport` is read.
        narrator: gets the plan and the current partner (not on node 0, where `conduct` speaks).

    Raises:
        ExchangeError: the connection to node 0 is gone, or a message is not what it should be.
        DeadlineExceeded: node 0 is connected and sends nothing any more.
    """
    opening = convert(start, wire.Opening)
    speaker = narrator if node.node_rank != 0 else None
    endpoint = Endpoint(opening, node.node_rank)
    try:
        addresses: tuple[tuple[str, str], ...] = ()
        why = said("NCCL and Gloo chose no address")
        if isinstance(facts.transport, TransportFacts):
            addresses = local_addresses(
                facts.transport, num_nodes=opening.num_nodes, most=opening.max_addresses, with_nccl=opening.with_nccl
            )
        else:
            why = said("the addresses of NCCL and Gloo are not known: {why}", why=facts.transport.phrase)
        report = await endpoint.open(addresses)
        if not addresses:
            report = wire.EndpointReport(**texts(why=why))
        await node.send("reach.endpoint", report)
        await _probe_and_answer(node, opening, endpoint, report, speaker)
    finally:
        await endpoint.close()


async def _probe_and_answer(
    node: NodeSide, opening: wire.Opening, endpoint: Endpoint, report: wire.EndpointReport, speaker: Narrator | None
) -> None:
    probing: asyncio.Future[wire.Result] | None = None
    counting: asyncio.Future[wire.SentCounts] | None = None
    probes: list[tuple[int, PartnerProbe]] = []
    in_flight_s, slot_s = IN_FLIGHT_S, LAST_BURST_S
    # The channel is read while probing goes on: the hub may end the stage early, or be gone.
    incoming = asyncio.ensure_future(node.receive(timeout_s=PLAN_S))
    try:
        while True:
            tasks = {task for task in (incoming, probing, counting) if task is not None}
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if probing is not None and probing.done():
                result, probing = probing.result(), None
                await node.send("reach.result", result)
                continue
            if counting is not None and counting.done():
                counted, counting = counting.result(), None
                await node.send("reach.counted", counted)
                continue
            kind, body = incoming.result()
            wait_s = END_S
            if kind == "reach.done":
                return
            if kind == "reach.plan" and probing is None:
                plan = convert(body, wire.ReachPlan)
                wait_s += plan.limit_s
                slot_s = min(LAST_BURST_S, MAX_LAST_BURSTS_S / max(1, len(plan.partners)))
                probing = asyncio.ensure_future(_probe(node.node_rank, opening, report, plan, probes, speaker))
            elif kind in {"reach.count", "reach.collect"}:
                for task in (probing, counting):
                    if task is not None:  # node 0 waits for this result no longer
                        await _stop(task)
                probing = counting = None
                if kind == "reach.count":
                    in_flight_s = QUEUED_IN_FLIGHT_S
                    counting = asyncio.ensure_future(_count(probes, slot_s))
                    incoming = asyncio.ensure_future(node.receive(timeout_s=wait_s))
                    continue
                await asyncio.sleep(in_flight_s)
                await node.send("reach.arrived", endpoint.arrived())
            else:
                raise ExchangeError(f"node 0 sent {kind!r} in the middle of the reachability stage")
            incoming = asyncio.ensure_future(node.receive(timeout_s=wait_s))
    finally:
        for running in (incoming, probing, counting):
            if running is not None:
                await _stop(running)


async def _stop(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _count(probes: Sequence[tuple[int, PartnerProbe]], slot_s: float) -> wire.SentCounts:
    """The last burst to every partner, each begun at the time of its round, until the time is over."""

    async def count(number: int, probe: PartnerProbe) -> None:
        await asyncio.sleep(number * slot_s)
        await probe.count_once_more()

    tasks = [asyncio.ensure_future(count(number, probe)) for number, probe in probes]
    try:
        if tasks:
            done, _ = await asyncio.wait(tasks, timeout=COUNT_S)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return wire.SentCounts(sent=tuple(row for _, probe in probes for row in probe.sent if row.bursts))


async def _probe(
    own_rank: int,
    opening: wire.Opening,
    report: wire.EndpointReport,
    plan: wire.ReachPlan,
    probes: list[tuple[int, PartnerProbe]],
    speaker: Narrator | None,
) -> wire.Result:
    """Partner after partner until all are done or the time is over; never raises for what the network does.

    `probes` gets each with the number of its round.
    """
    start = time.monotonic()
    interface = next((o.interface for o in report.offers if o.address.startswith("fe80:")), None)
    condensed = opening.num_nodes > MAX_NODES_WITH_ALL_ROWS
    rows: list[wire.Row] = []
    sent: list[wire.SentRow] = []
    if speaker is not None and any(p is not None for p in plan.partners):
        key = "reach.plan" if plan.num_pairs == plan.num_pairs_all else "reach.plan_sample"
        speaker.log(
            key,
            num_pairs=plan.num_pairs,
            num_pairs_all=plan.num_pairs_all,
            num_rounds=len(plan.partners),
            estimate_s=f"{plan.estimate_s:.1f}",
        )
    for i, partner in enumerate(plan.partners):
        if partner is None:
            continue
        left_s = plan.limit_s - (time.monotonic() - start)
        if left_s <= 0:
            log.warning("node_rank=%d: no time left for the partners from round %d on", own_rank, i + 1)
            break
        if speaker is not None:
            speaker.say("reach.probe", partner=partner, round=i + 1, num_rounds=len(plan.partners))
        probe = PartnerProbe(opening, own_rank, interface, partner, plan.offers.get(partner, ()))
        probes.append((i, probe))
        try:
            async with asyncio.timeout(left_s):
                await probe.run()
        except TimeoutError:
            log.warning("node_rank=%d: the time was over while probing node %d", own_rank, partner)
        rows += probe.rows(condensed=condensed)
        sent += probe.sent
    return wire.Result(rows=tuple(rows), sent=tuple(sent))
