"""Every recorded run gives the same class and ranks as a live feed and from files."""

import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from allready.cli.main import main
from allready.judging.arbiter import explain_order
from allready.judging.loading import load
from allready.report.json_report import decode
from tests.cases import cases
from tests.judging.replay import outcome, outcome_of_files, replay

pytestmark = pytest.mark.thorough

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
    "output alone is recorded, which says how a job that hung was ended: agents see where its ranks stand": (
        "runs_cpu_two_nodes/groups_cross",
        "runs_cpu_two_nodes/send_alone",
    )
}
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
    files, live = outcome_of_files(report, fed), outcome(fed, fed.world)
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
