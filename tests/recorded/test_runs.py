"""Recorded runs of 2 x 2 H200 with one fault each: the verdict against what was injected.

Every run is judged from all that it left and from each kind of evidence alone.  What a kind cannot know it must not
guess: then the answer may be unknown, or merely possible, but never another culprit held for likely or certain.
"""

import itertools
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from allready.cli.main import main
from tests.cases import cases

RUNS = Path(__file__).resolve().parents[1] / "fixtures" / "runs"
TRUTH: dict[str, dict[str, Any]] = json.loads((RUNS / "truth.json").read_text(encoding="utf-8"))
KINDS = {"nccl": "nccl.", "stdout": "stdout.", "recorder": "fr_", "ras": "ras", "stacks": "pyspy."}

UNSEEN = {"slow_rank"}
"""A rank that sleeps 0.4 s in every iteration leaves logs without times that are equal to those of a healthy run."""

KNOWS = {
    "nccl": {"ok", "v2_ok", "many_iters_coll", "p2p_disabled", "size_mismatch", "shm_tiny", "wrong_ifname",
             "sigstop", "dataloader_stall", "eval_branch", "v2_lock"},
    "stdout": {"sigkill", "exception", "shm_tiny", "wrong_ifname", "sigstop", "dataloader_stall", "eval_branch",
               "v2_lock"},
    "recorder": {"sigstop", "dataloader_stall", "eval_branch", "v2_lock"},
    "ras": {"sigstop", "dataloader_stall", "eval_branch", "v2_lock"},
    "stacks": set(),
}  # fmt: skip
"""Kind of evidence -> runs in which it alone must find the truth."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for archive in RUNS.glob("*.tar.xz"):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    return folder


def judge(paths: list[Path], tmp_path: Path) -> tuple[int, dict[str, Any]]:
    target = tmp_path / "report.json"
    code = main(["diagnose", *map(str, paths), "--json", str(target), "-q"])
    return code, json.loads(target.read_text(encoding="utf-8"))


def classes(truth: dict[str, Any]) -> set[str]:
    named = truth["fault_class"]
    return {named} if isinstance(named, str) else set(named)


def culprit_nodes(truth: dict[str, Any]) -> list[int]:
    return [int(name.removeprefix("node")) for name in truth.get("culprit_nodes", [])]


def assert_as_injected(report: dict[str, Any], code: int, truth: dict[str, Any]) -> None:
    if truth["fault_class"] == "HEALTHY":
        assert (report["status"], report["verdict"], code) == ("healthy", None, 0), report["verdict"]
        return
    verdict = report["verdict"]
    assert verdict is not None, report["findings"]
    assert (report["status"], code) == ("fault", 1)
    assert verdict["fault_class"] in classes(truth), verdict
    if truth.get("culprit_ranks"):
        assert verdict["culprits"]["ranks"] == truth["culprit_ranks"], verdict
    else:
        assert verdict["culprits"]["nodes"] == culprit_nodes(truth), verdict


@cases("name", sorted(set(TRUTH) - UNSEEN), parts=3)
def test_everything_that_a_run_left_gives_the_truth(name: str, runs: Path, tmp_path: Path) -> None:
    code, report = judge([runs / name], tmp_path)
    assert_as_injected(report, code, TRUTH[name])


@cases("name", sorted(TRUTH), parts=3)
def test_the_archive_gives_what_the_folder_gives(name: str, runs: Path, tmp_path: Path) -> None:
    code, report = judge([RUNS / f"{name}.tar.xz"], tmp_path)
    same_code, same = judge([runs / name], tmp_path)
    assert (code, report["status"]) == (same_code, same["status"])
    keys = ("code", "fault_class", "culprits", "confidence")
    assert [report["verdict"][k] for k in keys] == [same["verdict"][k] for k in keys] if same["verdict"] else True


@cases(("kind", "name"), [(kind, name) for kind, prefix in KINDS.items() for name in sorted(TRUTH)], parts=12)
def test_one_kind_of_evidence_alone_gives_the_truth_or_does_not_pretend(
    kind: str, name: str, runs: Path, tmp_path: Path
) -> None:
    paths = sorted(p for p in (runs / name).iterdir() if p.name.startswith(KINDS[kind]))
    if not paths:
        return
    code, report = judge(paths, tmp_path)
    truth = TRUTH[name]
    if name in KNOWS[kind]:
        assert_as_injected(report, code, truth)
        return
    verdict = report["verdict"]
    if truth["fault_class"] == "HEALTHY":
        assert verdict is None, verdict
    elif verdict is not None and verdict["confidence"] != "possible":
        assert verdict["fault_class"] in classes(truth), verdict
        ranks = set(verdict["culprits"]["ranks"])
        assert ranks <= set(truth.get("culprit_ranks") or ()) or not ranks, verdict


@cases("name", sorted(n for n in TRUTH if TRUTH[n]["fault_class"] == "HEALTHY"))
def test_a_healthy_run_has_nothing_above_a_warning(name: str, runs: Path, tmp_path: Path) -> None:
    _, report = judge([runs / name], tmp_path)
    assert [f for f in report["findings"] if f["severity"] in {"error", "blocker"}] == []


def test_intra_node_traffic_through_host_memory_is_warned_of(runs: Path, tmp_path: Path) -> None:
    _, report = judge([runs / "p2p_disabled"], tmp_path)
    warned = [f for f in report["findings"] if f["severity"] == "warning" and "P2P" in f["message"] + f["remedy"]]
    assert warned, report["findings"]


def test_operations_are_counted_by_rank_and_kind(runs: Path, tmp_path: Path) -> None:
    """400 iterations with one of each, 40 evaluations, and the barrier at the end, which is an all-reduce too."""
    _, report = judge([runs / "many_iters_coll"], tmp_path)
    counts = {row["rank"]: row["op_counts"] for row in report["ruins"]["ranks"]}
    assert {r: (c["all_reduce"], c["all_gather"]) for r, c in counts.items()} == dict.fromkeys(range(4), (441, 400))


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(TRUTH))
def test_no_mixture_of_kinds_accuses_anybody_else(name: str, size: int, runs: Path, tmp_path: Path) -> None:
    """Some kinds together: the truth, or nothing that is held for more than possible."""
    files = {kind: [p for p in (runs / name).iterdir() if p.name.startswith(prefix)] for kind, prefix in KINDS.items()}
    there = [kind for kind, found in files.items() if found]
    truth = TRUTH[name]
    for kinds in itertools.combinations(there, size):
        _, report = judge([p for kind in kinds for p in files[kind]], tmp_path)
        verdict = report["verdict"]
        if verdict is None:
            continue
        assert truth["fault_class"] != "HEALTHY", (kinds, verdict)
        culprits = verdict["culprits"]
        right = (culprits["ranks"], culprits["nodes"]) == (truth.get("culprit_ranks", []), culprit_nodes(truth))
        same_class = verdict["fault_class"] in classes(truth)
        nobody = verdict["confidence"] == "possible" and not culprits["ranks"] and not culprits["nodes"]
        assert (right and same_class) or nobody, (kinds, verdict)


def test_leaving_by_the_door_is_no_orderly_end_without_the_output_that_would_have_the_exception(
    runs: Path, tmp_path: Path
) -> None:
    """JAX destroys no communicator: its NCCL logs end like those of a job whose every rank raised."""
    logs = sorted((runs / "jax_ok").glob("nccl.*"))
    code, report = judge(logs, tmp_path)
    assert (code, report["status"], report["verdict"]) == (3, "unknown", None)
    code, report = judge([runs / "jax_ok"], tmp_path)
    assert (code, report["status"]) == (0, "healthy")


def test_where_no_operation_has_a_time_it_is_said_that_slowness_was_not_seen(runs: Path, tmp_path: Path) -> None:
    def codes(*names: str) -> set[str]:
        _, report = judge([runs / name for name in names], tmp_path)
        return {n["code"] for n in report["not_checked"]}

    assert "SLW001" in codes("slow_rank")
    assert "SLW001" in codes("ok")
    assert "SLW001" not in codes("exception/stdout.node0.log")  # of no operation
