"""Faults in a real NCCL job under `allready run`, recorded by benchmarks/record_gpu_runs.py: on 4 x H200, two
namespaces with two ranks each, and with four ranks on one H200, a namespace each, with torch 2.11 and, where torch's
backend is nccl2, with torch 2.15.  What the nodes' reports said, and what `allready diagnose` makes of their folders.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

from allready.cli.main import main
from tests.cases import cases

FOLDER = Path(__file__).parents[1] / "fixtures" / "h200"
RUNS = sorted([*FOLDER.glob("runs/*.tar.gz"), *FOLDER.glob("one_gpu*/*.tar.xz")])
VERDICT_WITHIN_S = 8.0

TRUTH: dict[str, tuple[str, dict[str, list[int]]]] = {
    "busy": ("CPU-BUSY", {"ranks": [3]}),
    "device_assert": ("DEAD", {"ranks": [3]}),
    "dtype": ("DESYNC-ARGS", {"ranks": [3]}),
    "extra": ("DESYNC-FLOW", {"ranks": [3]}),
    "gpu_oom": ("DEAD", {"ranks": [3]}),
    "leave": ("DESYNC-FLOW", {"ranks": [3]}),
    "link_down": ("NET-BROKEN", {"nodes": [1]}),  # of two nodes; of four it is the last
    "order": ("DESYNC-FLOW", {"ranks": [3]}),
    "raise": ("DEAD", {"ranks": [3]}),
    "sigkill": ("DEAD", {"ranks": [3]}),
    "sigstop": ("CPU-STUCK", {"ranks": [3]}),
    "size": ("DESYNC-ARGS", {"ranks": [3]}),
    "skip": ("DESYNC-FLOW", {"ranks": [3]}),
    "slow": ("SLOW-COMP", {"ranks": [3]}),
    "spin": ("HW-HANG", {"ranks": [3]}),
}
"""Run -> what was done to it.  `healthy` is the one that is not here."""


MOMENTS = {"busy", "sigkill", "slow"}
"""Runs of which the files of a moment show a rank that is missing, and not why."""
ON_FOUR_GPUS = {"dtype", "extra", "healthy", "link_down", "order", "sigkill", "sigstop", "size", "skip", "spin"}
ON_ONE_GPU = {"healthy", *TRUTH} - {"spin"}


def name_of(path: Path) -> str:
    return path.name.partition(".tar.")[0]


def label_of(path: Path) -> str:
    return f"{path.parent.name}/{name_of(path)}"


def is_shared(path: Path) -> bool:
    """Four ranks on one GPU."""
    return path.parent.name.startswith("one_gpu")


def is_healthy(path: Path) -> bool:
    return name_of(path) == "healthy"


def truth_of(path: Path) -> tuple[str, dict[str, list[int]]]:
    fault_class, culprits = TRUTH[name_of(path)]
    return (
        (fault_class, {"nodes": [3]}) if is_shared(path) and name_of(path) == "link_down" else (fault_class, culprits)
    )


def named(verdict: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in verdict["culprits"].items() if value}


def diagnosed(source: Path, tmp_path: Path) -> dict[str, Any]:
    target = tmp_path / "report.json"
    main(["diagnose", str(source), "--json", str(target), "-q"])
    report: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return report


def test_the_recordings_are_there() -> None:
    assert {name_of(path) for path in RUNS if path.parent.name == "runs"} == ON_FOUR_GPUS
    for folder in ("one_gpu", "one_gpu_nccl2"):
        assert {name_of(path) for path in RUNS if path.parent.name == folder} == ON_ONE_GPU


@cases("path", RUNS, ids=label_of)
def test_the_nodes_said_it_in_time(path: Path, tmp_path: Path) -> None:
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path, filter="data")
    saved = sorted(tmp_path.glob("node*/report.json"))
    reports = [json.loads(report.read_text(encoding="utf-8")) for report in saved]
    assert len(reports) == (2 if path.parent.name == "runs" else 4)
    if is_healthy(path):
        assert {(r["status"], r["verdict"]) for r in reports} == {("healthy", None)}
        return
    fault_class, culprits = truth_of(path)
    for node, report in enumerate(reports):
        verdict = report["verdict"]
        assert verdict["fault_class"] == fault_class
        assert verdict["detect_s"] is None or verdict["detect_s"] <= VERDICT_WITHIN_S
        if label_of(path) == "runs/link_down" and node == 0:  # it cannot know whose end of the path is broken
            assert named(verdict) == {"links": [[0, 1], [1, 0]]}
        else:
            assert named(verdict) == culprits


@cases("path", RUNS, ids=label_of)
def test_diagnose_of_the_folders_says_the_same(path: Path, tmp_path: Path) -> None:
    report = diagnosed(path, tmp_path)
    if is_healthy(path):
        assert (report["status"], report["verdict"]) == ("healthy", None)
        return
    fault_class, culprits = truth_of(path)
    assert (report["status"], report["verdict"]["fault_class"]) == ("fault", fault_class)
    assert named(report["verdict"]) == culprits


@cases("path", RUNS, ids=label_of)
def test_without_the_reports_nobody_else_is_accused(path: Path, tmp_path: Path) -> None:
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path / "left", filter="data")
    for report_json in (tmp_path / "left").glob("*/report.json"):
        report_json.unlink()
    report = diagnosed(tmp_path / "left", tmp_path)
    verdict = report["verdict"]
    if verdict is not None and verdict["confidence"] != "possible":
        fault_class, culprits = truth_of(path)
        assert verdict["fault_class"] in {fault_class, "DEAD", *(["CPU-STUCK"] if name_of(path) in MOMENTS else [])}
        found = named(verdict)
        if is_shared(path) and "ranks" in found:
            assert found.pop("nodes", [3]) == [3]  # a node of one rank
        assert found == culprits
