"""Every recorded run gives the same class and ranks as a live feed and from files."""

import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from allready.cli.diagnose_judge import fleet_of
from allready.cli.main import main
from allready.evidence.inputs import find
from allready.evidence.read import read_all
from allready.judging.arbiter import explain_order
from allready.judging.assemble import assemble
from allready.judging.conclude import Known, conclude
from allready.judging.engine import judge
from allready.judging.loading import load
from allready.model import RunEvidence, Verdict
from allready.report.json_report import decode
from tests.cases import cases
from tests.judging.replay import outcome, outcome_of_files, replay

pytestmark = pytest.mark.thorough

FIXTURES = Path(__file__).parents[1] / "fixtures"
PARTS = (
    "runs", "runs_cpu", "runs_cpu_two_nodes", "h100/two_nodes", "h100/frameworks", "h100/jax", "h200/nccl2",
    "h200/one_gpu", "h200/one_gpu_nccl2", "h200/ruins", "h200/runs"
)  # fmt: skip
ARCHIVES = {
    f"{part}/{path.name.partition('.tar')[0]}": path
    for part in PARTS
    for path in sorted((FIXTURES / part).glob("*.tar.*"))
}
CI = [name for name in ARCHIVES if name.startswith(("runs/", "h100/two_nodes/"))][::4]


class Missing(NamedTuple):
    """What agents send and no file of a recording has; with it, its files give the verdict of the live feed."""

    fact: str
    num_ranks: int = 0
    ended_s: Mapping[int | None, float] = {}  # by rank

    def added(self, run: RunEvidence) -> RunEvidence:
        deaths = (d if d.time_s is not None else replace(d, time_s=self.ended_s.get(d.rank)) for d in run.deaths)
        return replace(run, expected_ranks=run.expected_ranks or self.num_ranks, deaths=tuple(deaths))


MISSING: Mapping[str, Missing] = {
    "runs_cpu_two_nodes/send_alone": Missing("that there is no third rank, for which both may wait", num_ranks=2),
    "runs_cpu_two_nodes/groups_cross": Missing(
        "when rank 0 lost its connection: its traceback has no time. The launcher of node 1 ended the other rank at "
        "...968.4; that of node 0 found rank 0 not yet gone at ...969.4",
        ended_s={0: 1795404969.0},
    ),
}
"""Recorded run -> what its files lack."""


def judged(run: RunEvidence) -> Verdict | None:
    """As `diagnose` judges what it has read."""
    found, _ = judge(fleet_of(run, None), load().values())
    return conclude(found, Known(rules=load(), now=datetime.now(UTC), run=run)).verdict


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
    if name in MISSING:
        if files == live:
            return f"{name}: its files tell {files} without {MISSING[name].fact}"
        whole = MISSING[name].added(assemble(read_all(find([str(run)]), workers=1)))
        files = outcome_of_files(replace(report, verdict=judged(whole)), fed)
    return "" if files == live else f"{name}: from files {files}, as a live feed {live}"


@cases("name", CI, parts=4)
def test_a_recorded_run_as_a_live_feed_has_the_verdict_of_its_files(name: str, tmp_path: Path) -> None:
    assert not differs(name, tmp_path)


@pytest.mark.slow
@cases("name", sorted(set(ARCHIVES) - set(CI)), parts=4)
def test_the_other_recorded_runs_as_well(name: str, tmp_path: Path) -> None:
    assert not differs(name, tmp_path)


def test_what_is_said_to_be_missing_is_of_recorded_runs() -> None:
    assert set(ARCHIVES) >= set(MISSING)
