"""Every recorded run gives the same class and ranks as a live feed and from files."""

import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from allready.cli.main import main
from allready.judging.arbiter import explain_order
from allready.judging.registry import load
from allready.report.json_report import decode
from tests.cases import cases
from tests.judging.replay import outcome, replay

FIXTURES = Path(__file__).parents[1] / "fixtures"
PARTS = (
    "runs", "runs_cpu", "runs_cpu_two_nodes", "h100/two_nodes", "h100/frameworks", "h100/jax", "h200/ruins", "h200/runs"
)  # fmt: skip
ARCHIVES = {
    f"{part}/{path.name.partition('.tar')[0]}": path
    for part in PARTS
    for path in sorted((FIXTURES / part).glob("*.tar.*"))
}
CI = [name for name in ARCHIVES if name.startswith(("runs/", "h100/two_nodes/"))]

CANNOT: Mapping[str, tuple[str, ...]] = {
    "output alone is recorded, and the culprit has none: its exit code, state and stack are what agents send": (
        "runs_cpu/gloo_early", "runs_cpu/gloo_exit_0", "runs_cpu/gloo_sigstop", "runs_cpu/gloo_sleep",
        "runs_cpu/gloo_tokenize", "runs_cpu/jax_kill", "runs_cpu/jax_stop", "runs_cpu_two_nodes/group_by_one",
        "runs_cpu_two_nodes/gil", "runs_cpu_two_nodes/groups_cross", "runs_cpu_two_nodes/loader_stuck",
        "runs_cpu_two_nodes/rank0_saves", "runs_cpu_two_nodes/sleeps", "runs_cpu_two_nodes/stops_itself",
    ),
    "a rank or node never came: the roll call of agents says so before there is a job to watch": (
        "h100/jax/absent", "h100/two_nodes/never_joins", "h200/ruins/never_joins", "runs_cpu_two_nodes/never_joins",
    ),
    "early lines tell it, or the launcher's; agents read of a rank's output what it ended with": (
        "h100/jax/interface", "runs_cpu/start_name", "runs_cpu/start_port",
    ),
    "sends and receives, or splits: NCCL's log has pairs of them, the numbers of a cell count all operations": (
        "h100/frameworks/both_recv", "h100/frameworks/groups_cross", "h100/frameworks/p2p_sizes",
        "h100/frameworks/splits", "h100/two_nodes/both_recv", "h100/two_nodes/groups_cross",
        "h100/two_nodes/send_alone", "h200/ruins/send_alone",
    ),
    "what a live job shows is not recorded: sockets, GPUs, children, the pace, the state of a silent process": (
        "h100/frameworks/loader_stuck", "h100/jax/sigstop", "h100/two_nodes/loader_stuck", "h100/two_nodes/os_exit",
        "h100/two_nodes/slow", "h100/two_nodes/spin", "h200/ruins/slow", "h200/ruins/spin", "h200/runs/link_down",
        "h200/runs/spin", "runs/link_down",
    ),
    "live it is known better: which rank left, or whose arguments were wrong": (
        "h100/frameworks/fsdp_twice", "h100/two_nodes/fsdp_twice", "runs_cpu_two_nodes/splits",
    ),
    "the root is in neither the dump nor the output": ("h100/frameworks/wrong_root",),
}  # fmt: skip
"""Why a recording does not show what agents would have sent -> runs."""
EXCUSED = {name for names in CANNOT.values() for name in names}


def differs(name: str, folder: Path) -> str:
    """What is wrong with one run; "" where it is as it must be."""
    run, target = folder / name, folder / "report.json"
    with tarfile.open(ARCHIVES[name]) as tar:
        tar.extractall(run, filter="data")
    main(["diagnose", "-q", "--json", str(target), str(run)])
    report = decode(target.read_bytes())
    why = explain_order(report.findings, load())
    pairs = zip(report.findings, report.findings[1:], strict=False)
    if [line.partition(": ")[0] for line in why] != [f"{a.code} before {b.code}" for a, b in pairs]:
        return f"{name}: findings {[f.code for f in report.findings]}, reasons {why}"
    fed = replay(run)
    files, live = outcome(report, fed.world), outcome(fed, fed.world)
    if (files == live) == (name in EXCUSED):
        return f"{name}: from files {files}, as a live feed {live}"
    return ""


@cases("name", CI, parts=4)
def test_a_recorded_run_as_a_live_feed_has_the_verdict_of_its_files(name: str, tmp_path: Path) -> None:
    assert not differs(name, tmp_path)


@pytest.mark.slow
@cases("name", sorted(set(ARCHIVES) - set(CI)), parts=4)
def test_the_other_recorded_runs_as_well(name: str, tmp_path: Path) -> None:
    assert not differs(name, tmp_path)


def test_the_excuses_name_recorded_runs_once() -> None:
    assert len(EXCUSED) == sum(map(len, CANNOT.values()))
    assert set(ARCHIVES) >= EXCUSED
