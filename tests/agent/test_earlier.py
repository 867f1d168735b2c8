"""A report folder that is used again: the second job's logs, report and diagnosis have nothing of the first's."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from allready.agent.earlier import put_aside_job, put_aside_node
from allready.evidence.inputs.find import EARLIER
from tests.agent.jobs import ALLREADY, Job

FAILS_ONCE = """
import os, pathlib
rank = os.environ["RANK"]
first = not pathlib.Path(os.environ["SEEN"]).exists()
print("first" if first else "second", "job, rank", rank, flush=True)
if first and rank == "1":
    raise RuntimeError("of the first job")
"""


@pytest.mark.slow
def test_the_second_job_in_a_folder_has_nothing_of_the_first(job: Job, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = job.script(FAILS_ONCE)

    def run_job() -> list[int]:
        nodes = [
            job.node(rank, "--report-dir", str(tmp_path / f"of-{rank}"), script, env={"SEEN": str(seen)})
            for rank in range(2)
        ]
        return [node.wait() for node in nodes]

    assert run_job()[0] == 1
    seen.touch()
    first = {rank: (tmp_path / f"of-{rank}/attempt0/node{rank}/rank{rank}/out.log").read_text() for rank in range(2)}
    assert "RuntimeError: of the first job" in first[1]
    assert run_job() == [0, 0], job.nodes[-1].err

    for rank in range(2):
        folder = tmp_path / f"of-{rank}"
        log = f"attempt0/node{rank}/rank{rank}/out.log"
        assert (folder / log).read_text() == f"second job, rank {rank}\n"
        [kept] = (folder / EARLIER).iterdir()
        assert (kept / log).read_text() == first[rank]
    of_0 = tmp_path / "of-0"
    [line] = (of_0 / "attempts.jsonl").read_text().splitlines()
    assert json.loads(line)["outcome"] == "success"
    [kept] = (of_0 / EARLIER).iterdir()
    assert json.loads((kept / "report.json").read_text())["verdict"]["culprits"]["ranks"] == [1]
    assert str(kept) in job.nodes[2].err

    words = [*ALLREADY, "diagnose", str(of_0), "--json", "-", "-q"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.returncode == 0, done.stdout[:2000]
    assert "of the first job" not in done.stdout


@pytest.mark.parametrize("with_reports", [True, False])
def test_what_is_not_a_job_s_stays(tmp_path: Path, with_reports: bool) -> None:
    ours = ["attempt0/node0/rank0/out.log", "attempt12/node3/rank9/out.log", "attempts.jsonl"]
    reports = ["report.json", "report.html", "report-node2.json"]
    others = [
        "attempt_0/x",
        "attempt1/notes.txt",
        "attempt3/nodes/x",
        "my-report.json",
        "checkpoint/attempt0/x",
        ".in-use-0",
        "report.json.bak",
        "attempts",
    ]
    (tmp_path / "elsewhere/node0").mkdir(parents=True)
    (tmp_path / "attempt2").symlink_to(tmp_path / "elsewhere")
    for name in (*ours, *reports, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    place = put_aside_job(tmp_path, with_reports=with_reports)
    assert place is not None
    moved = [*ours, *(reports if with_reports else [])]
    assert all((place / name).read_text() == name for name in moved)
    assert all((tmp_path / name).exists() == (name not in moved) for name in (*ours, *reports, *others))
    assert (tmp_path / "attempt2/node0").is_dir()
    assert put_aside_job(tmp_path, with_reports=with_reports) is None


def test_a_node_that_comes_late_leaves_the_attempts_before_it(tmp_path: Path) -> None:
    for name in ("attempt0/node1", "attempt1/node1", "attempt1/node0", "attempt2/node1"):
        (tmp_path / name).mkdir(parents=True)
    place = put_aside_node(tmp_path, 1, 1)
    assert place is not None
    assert sorted(str(p.relative_to(place)) for p in place.glob("*/*")) == ["attempt1/node1", "attempt2/node1"]
    assert (tmp_path / "attempt0/node1").is_dir()
    assert (tmp_path / "attempt1/node0").is_dir()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    folder = tmp_path / "report"
    (folder / "attempt0/node0").mkdir(parents=True)
    (folder / EARLIER).symlink_to(away)
    assert put_aside_job(folder, with_reports=True) is None
    assert (folder / "attempt0").is_dir()
    assert not list(away.iterdir())
