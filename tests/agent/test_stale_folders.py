"""Run folders that killed agents left: removed by the next agent, and never one of a living agent."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from allready.agent import entry
from allready.live import run_paths
from allready.live.run_paths import make_run_dir
from allready.proc.process import identify
from tests.cases import cases

ABOUT = {"source": "allready", "job_id": "j"}


@pytest.fixture(autouse=True)
def _no_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_paths, "_MEMORY", tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def left(**about: Any) -> Path:
    folder = make_run_dir("j")
    (folder / "job.json").write_text(json.dumps(ABOUT | about), encoding="utf-8")
    return folder


@cases(("ticks", "stays"), [(0, True), (-1, False), (None, True)])
def test_a_pid_that_another_process_has_now_keeps_no_folder(ticks: int | None, stays: bool) -> None:
    own = identify(os.getpid())
    assert own is not None
    folder = left(pid=own.pid, start_ticks=None if ticks is None else own.start_ticks + ticks)
    entry._remove_stale_run_dirs()
    assert folder.exists() == stays


def test_the_folder_of_an_agent_that_ended_goes_and_one_that_is_no_agent_s_stays() -> None:
    ended = subprocess.Popen(["/bin/true"])
    was = identify(ended.pid)
    ended.wait()
    folder, young = left(pid=ended.pid, start_ticks=1 if was is None else was.start_ticks), make_run_dir()
    (young / "job.json").write_text("{", encoding="utf-8")
    entry._remove_stale_run_dirs()
    assert not folder.exists()
    assert young.exists()
