"""Metrics in a real job over Gloo: who is late, what failed, and that sinks and alerts that hang hold up no rank."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from allready.cli.main import main
from allready.report.json_report import decode
from tests.clock import until
from tests.runtime.job import Job

pytestmark = [pytest.mark.torch, pytest.mark.jobs]


def diagnosed(folder: Path) -> tuple[int, Any]:
    target = folder.parent / "report.json"
    code = main(["diagnose", "-q", "--json", str(target), str(folder)])
    return code, decode(target.read_bytes())


def test_event_logs_name_the_culprit_of_the_last_verdict_and_nothing_that_hangs_delays(tmp_path: Path) -> None:
    """Rank 3 is late in every call, rank 1 raises and goes on, rank 2 is killed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/hook?token=sekret"
        faults = [(1, "raise"), (2, "kill")]
        with Job(
            tmp_path, 4, script="metrics_rank.py", where=str(tmp_path), url=url, steps=40, late=3, faults=faults
        ) as job:
            job.wait([0, 1, 3])
            for rank in (0, 1, 3):
                late = job.last(rank, "lateness")
                assert (late["code"], late["culprits"]) == ("SLW001", [3]), late
                assert late["share"] > 0.8
                tuning = job.last(rank, "tuning")
                assert tuning == job.last(0, "tuning"), "advice is the same on every rank"
                before_s, advised_s, adapted_s = tuning["limits_s"]
                assert (before_s, tuning["last"], tuning["inside"]) == (600.0, 3, [1800.0, 0]), tuning
                assert 0.5 <= advised_s < before_s
                assert adapted_s == pytest.approx(advised_s, abs=1e-6)  # a timedelta counts microseconds
                assert any("rank 3 was last in" in text for text in tuning["text"])
                assert [(e["code"], e["culprits"]) for e in job.events(rank) if e["event"] == "recovered"] == [
                    ("RTM002", [1]),
                    ("RTM001", [2]),
                ]
                counted = job.last(rank, "counts")
                assert (counted["failures"], counted["recoveries"], counted["calls"]) == (2, 2, 40)
                assert job.last(rank, "done")["took_s"] < 60.0  # the sink hangs for 300
                assert "sekret" not in job.errors(rank)
    exit_code, report = diagnosed(tmp_path / "events")
    assert (exit_code, report.verdict.code, report.verdict.culprits.ranks) == (1, "RTM001", (2,))
    assert report.world.world_size == 4
    assert "the group of ranks 0, 1, 3 went on" in " ".join(report.notes)
    assert b"hf_abcdefgh" not in b"".join(path.read_bytes() for path in tmp_path.glob("[ae]*/*.jsonl"))
    until(lambda: len(_alerts(tmp_path)) == 2, 20.0)
    assert [(a["code"], a["culprits"], a["rank"]) for a in _alerts(tmp_path)] == [
        ("RTM002", [1], 0),
        ("RTM001", [2], 0),
    ]
    assert "hf_abcdefgh" not in str(_alerts(tmp_path))
    assert 'allready_recoveries_total{rank="0"} 2' in (tmp_path / "rank0.prom").read_text()


def _alerts(folder: Path) -> list[Any]:
    file = folder / "alerts.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
