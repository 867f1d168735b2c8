"""Node 0's part of the reachability stage: plan, wait with deadlines, merge."""

import logging
import secrets
import time
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from allready.errors import DeadlineExceeded, ExchangeError
from allready.messaging.channel import LOST, HubSide, Narrator, convert
from allready.model import Reachability, ranges
from allready.preflight.reach import wire
from allready.preflight.reach.merge import Gathered, checked, has_partial_losses, merge, num_good_pairs
from allready.preflight.reach.schedule import Schedule, make_schedule

log = logging.getLogger(__name__)

T = TypeVar("T")

SAY_EVERY_S = 0.5
RESULT_SLACK_S = 2.0
COUNTED_S = 5.0
ARRIVED_S = 2.0
ROUND_S = 0.05
"""Typical for one address without a port range; measured on two busy cores."""
PORT_S = 0.004
"""For every further port."""


async def conduct(hub: HubSide, request: wire.ReachRequest, narrator: Narrator) -> Reachability:
    """Have all connected nodes probe each other; ends at the latest at its own deadlines.

    Node 0 only, while every node (node 0 too) runs `take_part`.  A node that does not answer, or whose connection
    breaks, gets "not_run" paths; no other node is held up by it beyond the deadlines of `request`.

    Args:
        narrator: gets the estimate before probing starts, then who is being waited for, then the result.
    """
    start = time.monotonic()
    nodes = hub.nodes
    gathered = Gathered()
    schedule = make_schedule(nodes, max_rounds=request.max_rounds, seed=request.job_id)
    narrator.say("reach.open")
    try:
        await hub.send(None, "reach.open", _opening(request, nodes))
        gathered.endpoints = await _gather(
            hub, nodes, "reach.endpoint", wire.EndpointReport, request.endpoint_s, gathered, narrator
        )
        for r in [r for r, report in gathered.endpoints.items() if not _is_sound(r, report, gathered)]:
            del gathered.endpoints[r]
        if gathered.silent:
            narrator.log("reach.no_endpoint", nodes=ranges(gathered.silent), seconds=f"{request.endpoint_s:g}")
        limit_s = request.limit_s if request.limit_s is not None else 8.0 + 0.5 * len(schedule.rounds)
        await _send_plans(hub, request, schedule, gathered, limit_s, narrator)
        asked = gathered.endpoints.keys() - gathered.lost.keys()
        gathered.results = await _gather(
            hub, asked, "reach.result", wire.Result, limit_s + RESULT_SLACK_S, gathered, narrator
        )
        if gathered.results:
            await _collect(hub, gathered, narrator)
        if has_partial_losses(gathered):  # of a filtered path another burst shows no more
            await hub.send(None, "reach.count", None)
            asked = gathered.results.keys() - gathered.lost.keys()
            gathered.counted = await _gather(
                hub, asked, "reach.counted", wire.SentCounts, COUNTED_S, gathered, narrator
            )
            await _collect(hub, gathered, narrator)
    finally:
        await hub.send(None, "reach.done", None)
    reach = merge(request, schedule, gathered, time.monotonic() - start)
    if reach.num_pairs_planned:
        narrator.log(
            "reach.done",
            num_good=num_good_pairs(reach),
            num_pairs=reach.num_pairs_planned,
            num_done=reach.num_pairs_done,
            duration_s=f"{reach.duration_s:.1f}",
        )
    return reach


async def _collect(hub: HubSide, gathered: Gathered, narrator: Narrator) -> None:
    """Which datagrams arrived so far."""
    await hub.send(None, "reach.collect", None)
    asked = gathered.results.keys() - gathered.lost.keys()
    gathered.arrived = await _gather(hub, asked, "reach.arrived", wire.Arrived, ARRIVED_S, gathered, narrator)


def estimate_s(request: wire.ReachRequest, schedule: Schedule, gathered: Gathered) -> float:
    """How long probing takes if all is well."""
    num_ports = max(
        (sum(len(o.data_ports) + len(o.range_ports) for o in e.offers) for e in gathered.endpoints.values()), default=0
    )
    return len(schedule.rounds) * (ROUND_S + PORT_S * max(0, num_ports - request.num_data_ports))


def _opening(request: wire.ReachRequest, nodes: Collection[int]) -> wire.Opening:
    return wire.Opening(
        token=secrets.token_hex(16),
        num_nodes=max(nodes, default=0) + 1,
        avoid_port=request.master[1] if request.master else None,
        **{name: getattr(request, name) for name in wire.Probing.__struct_fields__},
    )


async def _send_plans(
    hub: HubSide, request: wire.ReachRequest, schedule: Schedule, gathered: Gathered, limit_s: float, narrator: Narrator
) -> None:
    """To every node its own partners only; a node without an endpoint is no node's partner."""
    expected_s = estimate_s(request, schedule, gathered)
    if schedule.rounds:
        narrator.log(
            "reach.plan_sample" if schedule.is_sample else "reach.plan",
            num_pairs=schedule.num_pairs,
            num_pairs_all=schedule.num_pairs_all,
            num_rounds=len(schedule.rounds),
            estimate_s=f"{expected_s:.1f}",
        )
    for r, column in schedule.partners().items():
        if r not in gathered.endpoints:
            continue
        partners = tuple(p if p in gathered.endpoints else None for p in column)
        plan = wire.ReachPlan(
            partners=partners,
            offers={p: gathered.endpoints[p].offers for p in partners if p is not None},
            limit_s=limit_s,
            estimate_s=expected_s,
            num_pairs=schedule.num_pairs,
            num_pairs_all=schedule.num_pairs_all,
        )
        await hub.send(r, "reach.plan", plan)


async def _gather(
    hub: HubSide,
    asked: Iterable[int],
    kind: str,
    shape: type[T],
    within_s: float,
    gathered: Gathered,
    narrator: Narrator,
) -> dict[int, T]:
    """One answer of every node in `asked`; who gave none is noted in `gathered.silent` or `gathered.lost`."""
    answers: dict[int, T] = {}
    missing = set(asked)
    deadline = time.monotonic() + within_s
    while missing:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        try:
            node_rank, got, body = await hub.receive(timeout_s=min(left_s, SAY_EVERY_S))
        except DeadlineExceeded:
            narrator.say("reach.wait", nodes=ranges(missing), left_s=f"{max(0.0, deadline - time.monotonic()):.0f}")
            continue
        if got == LOST:
            gathered.lost[node_rank] = _short(body)
            missing.discard(node_rank)
            narrator.log("reach.lost", node=node_rank)
        elif got == kind and node_rank in missing:
            missing.discard(node_rank)
            try:
                answers[node_rank] = convert(body, shape)
            except ExchangeError as error:
                gathered.silent[node_rank] = _short(error)
        else:
            log.info("node_rank=%d: %s came while waiting for %s", node_rank, got, kind)
    for r in missing:
        gathered.silent.setdefault(r, f"no {kind} within {within_s:g} s")
    return answers


def _is_sound(node_rank: int, report: wire.EndpointReport, gathered: Gathered) -> bool:
    try:
        checked(report)
    except ValueError as error:
        gathered.silent[node_rank] = _short(error)
        return False
    return True


def _short(why: Any) -> str:
    return str(why)[:200]
