"""Faults in a real NCCL job under `allready run` on 4 x H200, two namespaces with two ranks each, recorded by
benchmarks/record_gpu_runs.py: what the nodes' reports said, and what `allready diagnose` makes of their folders.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

from allready.cli.main import main
from tests.cases import cases

FOLDER = Path(__file__).parents[1] / "fixtures" / "h200" / "runs"
RUNS = sorted(FOLDER.glob("*.tar.gz"))
VERDICT_WITHIN_S = 8.0

TRUTH: dict[str, tuple[str, dict[str, list[int]]]] = {
    "dtype": ("DESYNC-ARGS", {"ranks": [3]}),
    "extra": ("DESYNC-FLOW", {"ranks": [3]}),
    "link_down": ("NET-BROKEN", {"nodes": [1]}),
    "order": ("DESYNC-FLOW", {"ranks": [3]}),
    "sigkill": ("DEAD", {"ranks": [3]}),
    "sigstop": ("CPU-STUCK", {"ranks": [3]}),
    "size": ("DESYNC-ARGS", {"ranks": [3]}),
    "skip": ("DESYNC-FLOW", {"ranks": [3]}),
    "spin": ("HW-HANG", {"ranks": [3]}),
}
"""Run -> what was done to it.  `healthy` is the one that is not here."""


def name_of(path: Path) -> str:
    return path.name.removesuffix(".tar.gz")


def named(verdict: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in verdict["culprits"].items() if value}


def diagnosed(source: Path, tmp_path: Path) -> dict[str, Any]:
    target = tmp_path / "report.json"
    main(["diagnose", str(source), "--json", str(target), "-q"])
    report: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return report


def test_the_recordings_are_there() -> None:
    assert {name_of(path) for path in RUNS} == {*TRUTH, "healthy"}


@cases("path", RUNS, ids=name_of)
def test_the_nodes_said_it_in_time(path: Path, tmp_path: Path) -> None:
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path, filter="data")
    reports = [json.loads((tmp_path / f"node{n}" / "report.json").read_text(encoding="utf-8")) for n in (0, 1)]
    if name_of(path) not in TRUTH:
        assert [(r["status"], r["verdict"]) for r in reports] == [("healthy", None)] * 2
        return
    fault_class, culprits = TRUTH[name_of(path)]
    for node, report in enumerate(reports):
        verdict = report["verdict"]
        assert verdict["fault_class"] == fault_class
        assert verdict["detect_s"] <= VERDICT_WITHIN_S
        if name_of(path) == "link_down" and node == 0:  # of two nodes it cannot know whose end of the path is broken
            assert named(verdict) == {"links": [[0, 1], [1, 0]]}
        else:
            assert named(verdict) == culprits


@cases("path", RUNS, ids=name_of)
def test_diagnose_of_the_folders_says_the_same(path: Path, tmp_path: Path) -> None:
    report = diagnosed(path, tmp_path)
    if name_of(path) not in TRUTH:
        assert (report["status"], report["verdict"]) == ("healthy", None)
        return
    fault_class, culprits = TRUTH[name_of(path)]
    assert (report["status"], report["verdict"]["fault_class"]) == ("fault", fault_class)
    assert named(report["verdict"]) == culprits


@cases("path", RUNS, ids=name_of)
def test_without_the_reports_nobody_else_is_accused(path: Path, tmp_path: Path) -> None:
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path / "left", filter="data")
    for report_json in (tmp_path / "left").glob("*/report.json"):
        report_json.unlink()
    report = diagnosed(tmp_path / "left", tmp_path)
    verdict = report["verdict"]
    if verdict is not None and verdict["confidence"] != "possible":
        fault_class, culprits = TRUTH[name_of(path)]
        # Of one that is silent the logs do not tell why.
        assert verdict["fault_class"] in {fault_class, "DEAD"}
        assert named(verdict) == culprits
