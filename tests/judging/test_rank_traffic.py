"""Connections of a check's ranks, judged by the rules about a running job."""

from collections.abc import Mapping
from typing import Any

from allready.judging.rank_traffic import RankTraffic, carries_data, cut_nodes, link_findings, moving, traffic_findings
from allready.model import (
    CollectiveRun,
    Collectives,
    Live,
    NodeEvidence,
    NodeStatus,
    PathSize,
    SocketRow,
    World,
    WorldNode,
)
from tests.rules.link.wires import DEAD, address, neighbours, row

WORLD = World(
    num_nodes=3, world_size=3, nodes=tuple(WorldNode(node_rank=n, name=f"gpu{n}", ranks=(n,)) for n in range(3))
)
WALL_S = 1e6


def traffic(
    changes: Mapping[tuple[int, int], Mapping[str, Any]] | None = None,
    sizes: Mapping[tuple[int, int], PathSize] | None = None,
    *,
    silent: tuple[int, ...] = (),
) -> Live:
    """Three nodes in a ring, two looks a second apart: what node 0 has when 100 s are on its clock."""
    found = RankTraffic({n: f"gpu{n}" for n in range(3)}, {n: (address(n),) for n in range(3)}, wall_s=WALL_S)
    for node in range(3):
        found.note_message(node, 92.0 if node in silent else 99.9)
        if node in silent:
            continue
        looks = [_look(node, changes or {}, index) for index in range(2)]
        own = {address(b): size for (a, b), size in (sizes or {}).items() if a == node}
        evidence = NodeEvidence(
            node_rank=node,
            number=1,
            time_s=-0.1,
            status=NodeStatus(node_rank=node),
            sockets=looks[-1].sockets,
            interfaces={address(node): "eth7"},
            path_sizes=own,
        )
        found.take(node, looks, evidence, 99.9)
    return found.live(100.0)


def _look(node: int, changes: Mapping[tuple[int, int], Mapping[str, Any]], index: int) -> NodeStatus:
    rows: list[SocketRow] = []
    for a, b in neighbours(3):
        if a == node:
            change = dict(changes.get((a, b), {}))
            acked = 1000 + index * change.pop("acked_per_look", 0)
            rows.append(row(a, b, **({"bytes_acked": acked} | change)))
    return NodeStatus(node_rank=node, time_s=index - 1.1, sockets=tuple(rows))


def collectives(live: Live | None) -> Collectives:
    return Collectives(runs=(CollectiveRun(label="all", backend="gloo", ranks=(0, 1, 2), stages=(), traffic=live),))


def test_a_node_whose_data_goes_unacknowledged_and_that_is_silent_is_named() -> None:
    live = traffic({(0, 1): DEAD, (2, 1): DEAD}, silent=(1,))
    assert [(f.code, f.culprits.nodes) for f in link_findings(live, WORLD)] == [("LNK001", (1,))]
    assert cut_nodes(collectives(live)) == {0, 1, 2}, "all nodes to or from which something is stuck"


def test_an_mtu_black_hole_is_named_with_the_interface() -> None:
    hole = PathSize(passed_bytes=1500, lost_bytes=4000)
    sizes = {(0, 1): hole, (2, 1): hole, (0, 2): PathSize(passed_bytes=9000), (2, 0): PathSize(passed_bytes=9000)}
    [found] = traffic_findings(collectives(traffic({(0, 1): DEAD, (2, 1): DEAD}, sizes)), WORLD)
    assert (found.code, found.culprits.nodes) == ("LNK008", (1,))
    assert found.remedies[0].command == "ip link set dev eth7 mtu 1500"


def test_a_hole_everywhere_is_blamed_on_no_node_though_only_two_paths_are_stuck_yet() -> None:
    sizes = {(a, b): PathSize(passed_bytes=1500, lost_bytes=4000) for a in range(3) for b in range(3) if a != b}
    [found] = link_findings(traffic({(0, 1): DEAD, (2, 0): DEAD}, sizes), WORLD)
    assert (found.code, found.culprits.nodes) == ("LNK008", ())


def test_data_that_moves_is_slow_and_not_stuck() -> None:
    live = traffic({(0, 1): {"acked_per_look": 500_000}})
    assert moving(live) == {(0, 1): 500_000.0}
    assert carries_data(live)
    assert not carries_data(traffic())
    assert not carries_data(traffic({(0, 1): {"acked_per_look": 500_000}, (2, 1): DEAD}))


def test_healthy_connections_show_nothing() -> None:
    assert link_findings(traffic(), WORLD) == ()
    assert cut_nodes(collectives(traffic())) == frozenset()
    assert traffic_findings(collectives(None), WORLD) == ()


def test_it_is_known_who_has_answered_since_a_question() -> None:
    found = RankTraffic({0: "a", 1: "b"}, wall_s=0.0)
    found.take(0, (), NodeEvidence(node_rank=0, number=1, time_s=0.0, status=NodeStatus(node_rank=0)), 5.0)
    assert found.is_complete({0}, since_s=4.0)
    assert not found.is_complete({0}, since_s=6.0)
    assert not found.is_complete({0, 1}, since_s=4.0)
