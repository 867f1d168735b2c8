"""What another node says of ranks and numbers: only its own, only possible ones; the rest is passed over."""

from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from allready.agent import messages
from allready.agent.context import AgentState
from allready.agent.node_report import NodeReport
from allready.agent.nodes import NodeTable
from allready.agent.plan_check import refuse_nonsense
from allready.errors import ExchangeError
from allready.launch.request import RankCommand, RunRequest
from allready.model import NodeEvidence, NodeStatus, ProcessEnd, ProcessState, RankEvidence, RankStatus
from tests.cases import cases


def table() -> NodeTable:
    known = NodeTable(AgentState(reports=NodeReport(lambda _report: None)), lambda: None)
    known.begin(1, {0: (0, 1), 1: (2, 3)})
    return known


def status(node: int, *ranks: int, attempt: int = 1) -> NodeStatus:
    rows = tuple(
        RankStatus(rank=r, local_rank=0, pid=100 + r, phase="computing", process_state=ProcessState.RUNNING)
        for r in ranks
    )
    return NodeStatus(node_rank=node, attempt=attempt, ranks=rows)


@cases(
    "offer",
    [{"nproc_per_node": 20_000_000}, {"nproc_per_node": 0}, {"nproc_per_node": -1},
     {"nproc_per_node": 1, "start_rank": 1 << 60}, {"nproc_per_node": 1, "start_rank": -1},
     {"nproc_per_node": 1, "addresses": ["x" * 300]}, {"nproc_per_node": 1, "addresses": ["x"] * 10_000},
     {"nproc_per_node": 1, "coordinator_ports": [70_000]}, {"nproc_per_node": 1, "name": "x" * 10_000}],
)  # fmt: skip
def test_an_offer_out_of_all_bounds_is_none(offer: dict[str, Any]) -> None:
    known = table()
    known.take(1, messages.OFFER, offer)
    assert known.offers == {}
    known.take(1, messages.OFFER, {"nproc_per_node": 8, "start_rank": 16, "addresses": ["10.0.0.1"]})
    assert known.offers[1].nproc_per_node == 8


def test_a_node_speaks_for_its_own_ranks_only() -> None:
    known = table()
    known.take(1, messages.STATUS, to_builtins(status(1, 2, 3)))
    assert set(known.statuses) == {1}
    for foreign in (status(1, 0), status(0, 0), status(1, 2, 99)):
        known.take(1, messages.STATUS, to_builtins(foreign))
    assert [r.rank for r in known.statuses[1].ranks] == [2, 3]
    assert 0 not in known.statuses
    for evidence in (
        NodeEvidence(node_rank=1, number=1, time_s=0.0, status=status(0, 0)),
        NodeEvidence(
            node_rank=1,
            number=1,
            time_s=0.0,
            status=status(1, 2),
            ranks=(RankEvidence(rank=0, status=status(0, 0).ranks[0]),),
        ),
    ):
        known.take(1, messages.EVIDENCE, to_builtins(evidence))
    assert known.answered == set()
    known.take(1, messages.ENDED, to_builtins(messages.Ended(attempt=1, ends=(ProcessEnd(rank=0, exit_code=0),))))
    assert known.ended == {}
    known.take(1, messages.ENDED, to_builtins(messages.Ended(attempt=1, ends=(ProcessEnd(rank=2, exit_code=0),))))
    assert set(known.ended) == {1}


PLAN = messages.Plan(
    attempt=0,
    job_id="job",
    instance="0123456789abcdef",
    num_nodes=2,
    node_rank=1,
    place=1,
    ranks=(2, 3),
    world_size=4,
    master_addr="gpu01",
    store_port=29501,
    max_restarts=3,
    token="0123456789abcdef0000",
)
REQUEST = RunRequest(command=RankCommand(target="train.py"), nproc_per_node=2, job_id="job")


def test_a_plan_of_node_0_is_followed() -> None:
    refuse_nonsense(PLAN, REQUEST)
    refuse_nonsense(replace(PLAN, master_addr="fe80::1%eth0", store_port=65535), REQUEST)


@cases(
    "changes",
    [{"job_id": "../../home/u"}, {"instance": "../x"}, {"instance": ""},
     {"ranks": tuple(range(1000)), "world_size": 2000},
     {"ranks": ()}, {"ranks": (3, 2)}, {"ranks": (2, 4)}, {"world_size": 3}, {"place": 2}, {"store_port": 0},
     {"coordinator_ports": (0,)}, {"master_addr": "h\nX=1"}, {"master_addr": ""}, {"coordinator": "a b"},
     {"attempt": -1}, {"token": "x y"}, {"ranks": (-2, -1)}],
)  # fmt: skip
def test_a_plan_that_node_0_never_makes_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ExchangeError):
        refuse_nonsense(replace(PLAN, **changes), REQUEST)
