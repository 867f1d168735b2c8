"""Real checks on 4 x H200, recorded by benchmarks/record_gpu_checks.py: judged again, they must give the same verdict.

This is the path of a saved folder: report.json -> evidence -> rules -> findings -> verdict.
"""

from pathlib import Path

from allready.facts.exchange import fleet_from_report
from allready.judging.engine import judge
from allready.model import Report
from allready.report import html, json_report
from tests.cases import cases

FOLDER = Path(__file__).parents[1] / "fixtures" / "h200"
FILES = sorted(FOLDER.glob("*.json"))

TRUTH: dict[str, tuple[str, dict[str, tuple[object, ...]]]] = {
    # scene -> fault class, culprits; scenes that are not here were healthy
    "one_node_stopped.node0": ("CPU-STUCK", {"nodes": (0,), "ranks": (2,)}),
    "one_node_killed.node0": ("DEAD", {"nodes": (0,), "ranks": (1,)}),
    "one_node_same_gpu.node0": ("ENV-MISMATCH", {"nodes": (0,)}),
    "one_node_isolate.node0": ("ENV-MISMATCH", {"nodes": (0,), "variables": ("NCCL_SOCKET_IFNAME",)}),
    "two_nodes_stopped.node0": ("CPU-STUCK", {"nodes": (1,), "ranks": (3,)}),
    "two_nodes_killed.node0": ("DEAD", {"nodes": (1,), "ranks": (2,)}),
    "two_nodes_link_down.node0": ("NET-BROKEN", {"nodes": (1,)}),
    "two_nodes_docker0.node0": ("START-NAME", {"nodes": (0, 1), "variables": ("NCCL_SOCKET_IFNAME",)}),
}


def load(path: Path) -> Report:
    return json_report.decode(path.read_bytes())


def test_the_recordings_are_there() -> None:
    assert {f.stem for f in FILES} >= set(TRUTH)
    assert len(FILES) >= 13


@cases("path", FILES, ids=lambda p: p.stem, parts=2)
def test_a_recording_judged_again_says_what_was_true(path: Path) -> None:
    report = load(path)
    findings, _ = judge(fleet_from_report(report))
    serious = [f for f in findings if f.severity.weight >= 2]
    if path.stem not in TRUTH:
        assert serious == []
        assert report.status == "healthy"
        return
    fault_class, culprits = TRUTH[path.stem]
    first = serious[0]
    named = {k: getattr(first.culprits, k) for k in ("nodes", "ranks", "links", "variables")}
    assert (first.fault_class, {k: v for k, v in named.items() if v}) == (fault_class, culprits)
    assert report.verdict is not None
    assert (report.verdict.code, report.verdict.culprits) == (first.code, first.culprits)


@cases("path", FILES, ids=lambda p: p.stem, parts=2)
def test_a_recording_can_be_shown(path: Path) -> None:
    page = html.render(load(path))
    assert "NVIDIA H200" in page


def test_bandwidth_of_healthy_runs_is_what_this_hardware_gives() -> None:
    """368 GB/s is the ring's expected plateau of 8 GPUs on NVLink 4, and a veth between namespaces gives about 1."""
    one = load(FOLDER / "one_node.node0.json").collectives
    two = load(FOLDER / "two_nodes.node0.json").collectives
    assert one is not None
    assert two is not None
    assert 330 < max(p.busbw_gb_per_s for p in one.runs[0].points) < 400
    assert 0.5 < max(p.busbw_gb_per_s for p in two.runs[0].points) < 3
    assert all(p.num_errors == 0 for c in (one, two) for p in c.runs[0].points)
