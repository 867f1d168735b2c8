"""What a node that node 0 cannot hear says of itself."""

from msgspec.structs import replace

from allready.agent.local_verdict import SURELY_SILENT_S, LocalView
from allready.judging.conclude import Known, concluded
from allready.judging.loading import load
from allready.model import Culprits, LinkRow, NodeStatus, SocketRow, Status, World, WorldNode
from tests.rules.link.wires import DEAD, NOW, address, row

WORLD = World(num_nodes=2, world_size=2, nodes=(WorldNode(node_rank=1, name="gpu02", ranks=(1,)),))


def status(age_s: float, *, has_carrier: bool = True, socket: SocketRow | None = None) -> NodeStatus:
    return NodeStatus(
        node_rank=1,
        name="gpu02",
        time_s=NOW - age_s,
        sockets=(socket or row(1, 0),),
        links=(LinkRow(name="eth0", is_up=True, has_carrier=has_carrier),),
    )


def view(*statuses: NodeStatus) -> LocalView:
    found = LocalView(1, WORLD, {0: (address(0),), 1: (address(1),)})
    for one in statuses:
        found.see(one)
    return found


UP, DOWN = status(4.0), status(0.0, has_carrier=False)


def test_its_own_link_is_gone_and_node_0_silent() -> None:
    report = view(UP, DOWN).judge(NOW, silent_s=SURELY_SILENT_S + 0.1)
    assert report is not None
    assert report.verdict is not None
    assert (report.verdict.code, report.verdict.culprits.nodes, report.status) == ("LNK002", (1,), "fault")
    assert "eth0 of node 1" in report.verdict.sentence
    assert report.world is WORLD


def test_data_that_is_stuck_on_it_tells_sooner() -> None:
    stuck = status(0.0, has_carrier=False, socket=row(1, 0, **DEAD))
    assert view(UP, stuck).judge(NOW, silent_s=0.5) is not None


def test_while_node_0_is_heard_nobody_is_accused() -> None:
    assert view(UP, DOWN).judge(NOW, silent_s=SURELY_SILENT_S - 0.5) is None


def test_a_link_that_is_there_or_never_was_is_no_cause() -> None:
    assert view(UP, status(0.0)).judge(NOW, silent_s=60.0) is None
    assert view(DOWN, status(0.0, has_carrier=False)).judge(NOW, silent_s=60.0) is None
    assert view().judge(NOW, silent_s=60.0) is None


def test_a_link_without_connections_of_the_job_is_no_cause() -> None:
    had, has = (NodeStatus(node_rank=1, time_s=s.time_s, links=s.links) for s in (UP, DOWN))
    assert view(had, has).judge(NOW, silent_s=60.0) is None


def test_the_time_of_the_first_verdict_stays() -> None:
    seen = view(UP, DOWN)
    first = seen.judge(NOW, silent_s=5.0)
    seen.see(status(-2.0, has_carrier=False))
    second = seen.judge(NOW + 2.0, silent_s=7.0)
    assert first is not None
    assert second is not None
    assert first.verdict is not None
    assert second.verdict is not None
    assert second.verdict.detected_time == first.verdict.detected_time


def test_what_was_half_a_minute_ago_or_in_another_attempt_is_forgotten() -> None:
    assert view(status(45.0), DOWN).judge(NOW, silent_s=60.0) is None


def test_another_interface_that_goes_down_at_the_same_time_is_not_accused() -> None:
    """docker0 loses its link when the last container ends; node 0 is silent for a reason of its own."""

    def word(age_s: float, *, docker0: bool, num_bytes: int) -> NodeStatus:
        links = (
            LinkRow(name="eth0", is_up=True, sent_bytes=num_bytes, received_bytes=num_bytes),
            LinkRow(name="docker0", is_up=True, has_carrier=docker0),
        )
        return NodeStatus(node_rank=1, time_s=NOW - age_s, sockets=(row(1, 0),), links=links)

    seen = view(word(4.0, docker0=True, num_bytes=0), word(0.0, docker0=False, num_bytes=5000))
    assert seen.judge(NOW, silent_s=60.0) is None


def test_a_proven_fault_stays_the_verdict_where_node_0_is_lost() -> None:
    link = view(UP, DOWN).judge(NOW, silent_s=SURELY_SILENT_S + 0.1)
    assert link is not None
    assert link.verdict is not None
    before = replace(
        link,
        findings=(replace(link.findings[0], code="LIV001", culprits=Culprits(ranks=(1,))),),
        verdict=replace(link.verdict, code="LIV001"),
    )
    kept = concluded(link, Known(rules=load(), earlier=before))
    assert kept.verdict == before.verdict
    assert [(f.code, f.severity) for f in kept.findings] == [("LIV001", "blocker"), ("LNK002", "warning")]
    waited = concluded(link, Known(rules=load(), earlier=replace(before, status=Status.WAITING)))
    assert (waited.status, waited.verdict) == (link.status, link.verdict)
    assert [f.code for f in waited.findings] == ["LNK002", "LIV001"]
    assert concluded(link, Known(rules=load(), earlier=replace(before, status=Status.HEALTHY))) == link
