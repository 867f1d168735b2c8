import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest

from allready.evidence.digest import digest
from allready.evidence.inputs import find
from allready.evidence.read import read_all
from allready.evidence.trace import write_trace
from allready.judging.assemble import assemble
from allready.model import RunEvidence, RunSummary, TimelineEvent

RUNS = Path(__file__).resolve().parents[1] / "fixtures" / "runs"


def traced(run: str, tmp_path: Path) -> tuple[list[dict[str, Any]], RunEvidence]:
    readings = read_all(find([str(RUNS / f"{run}.tar.xz")]), workers=1)
    after = assemble(readings)
    target = tmp_path / "trace.json"
    count = write_trace(target, digest(after), after, [d for r in readings for d in r.dumps])
    events = json.loads(target.read_text(encoding="utf-8"))["traceEvents"]
    assert len(events) == count
    return events, after


def test_nodes_are_processes_and_ranks_their_threads(tmp_path: Path) -> None:
    events, _ = traced("dataloader_stall", tmp_path)
    named = [e for e in events if e["name"] in {"process_name", "thread_name"}]
    names = {(e["pid"], e.get("tid")): e["args"]["name"] for e in named}
    assert names[0, None] == "node 0"
    assert names[1, 2].startswith("rank 2")


def test_every_operation_of_the_dumps_is_a_slice(tmp_path: Path) -> None:
    events, _ = traced("dataloader_stall", tmp_path)
    slices = [e for e in events if e.get("cat") in {"completed", "pending"}]
    with tarfile.open(RUNS / "dataloader_stall.tar.xz") as tar:
        entries = sum(
            len(pickle.loads(file.read())["entries"])
            for member in tar.getmembers()
            if "/fr_" in member.name and (file := tar.extractfile(member)) is not None
        )
    assert len(slices) == entries
    assert all(e["dur"] >= 0 for e in slices)
    assert {e["tid"] for e in slices if e["cat"] == "pending"} == {0, 1, 3}


def test_marks_have_their_line_and_source(tmp_path: Path) -> None:
    events, _ = traced("exception", tmp_path)
    deaths = [e for e in events if e.get("cat") == "death"]
    assert any("bad sample in shard 17" in e["args"]["line"] for e in deaths)
    assert all(e["ts"] > 0 for e in deaths)


def test_lines_without_a_time_are_left_out_and_odd_text_stays_json(tmp_path: Path) -> None:
    odd = 'a "line" \x00 \ud800 </script> \u2028'
    summary = RunSummary(
        timeline=(TimelineEvent(time_s=None, role="root", text="x"), TimelineEvent(time_s=5.0, role="root", text=odd))
    )
    target = tmp_path / "t.json"
    assert write_trace(target, summary, RunEvidence()) == 1
    [event] = json.loads(target.read_text(encoding="utf-8"))["traceEvents"]
    assert (event["ts"], event["ph"]) == (5_000_000, "i")


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_trace(tmp_path / "no" / "t.json", RunSummary(), RunEvidence())
