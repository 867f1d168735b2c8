"""A node whose own interface loses its link says so itself, under a real `allready run` in two namespaces."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allready.lab import Lab
from allready.lab.faults import from_words
from allready.lab.lab import end_group
from tests.agent.jobs import LOOP
from tests.clock import Deadline, Stopwatch


def verdict_in(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())["verdict"] or {}
    except (OSError, ValueError):
        return {}
    return found


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_node_whose_link_is_down_names_itself(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    script, moves = tmp_path / "train.py", tmp_path / "moves"
    script.write_text(LOOP)
    lab = make_lab(2)
    jobs: list[subprocess.Popen[bytes]] = []
    try:
        for node in range(2):
            env = {"TOUCH": str(moves), "STEPS": "100000", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
            argv = [
                sys.executable,
                "-m",
                "allready",
                "run",
                "--nnodes",
                "2",
                "--node-rank",
                str(node),
                "--nproc-per-node",
                "1",
                "--master-addr",
                lab.view.address(0),
                "--master-port",
                "29600",
                "--grace",
                "1",
                "-q",
                "--report-dir",
                str(tmp_path / f"node{node}"),
                str(script),
            ]
            null = subprocess.DEVNULL
            jobs.append(lab.popen(node, argv, env=env, stdin=null, stdout=null, stderr=null))
        deadline = Deadline(60)
        while not moves.exists():
            assert not deadline.passed()
            time.sleep(0.1)
        lab.apply(from_words(["link_down", "node=1"]))
        began, deadline = Stopwatch(), Deadline(20)
        own: dict[str, Any] = {}
        other: dict[str, Any] = {}
        while (own.get("code") != "LNK002" or not other) and not deadline.passed():
            time.sleep(0.1)
            own, other = (verdict_in(tmp_path / f"node{n}" / "report.json") for n in (1, 0))
        assert (own["code"], own["culprits"]["nodes"]) == ("LNK002", [1])
        assert began.s < 8
        assert (other["fault_class"], other["culprits"]["links"]) == ("NET-BROKEN", [[0, 1], [1, 0]])
        for job in jobs:
            job.wait(40)  # node 1 gives node 0 up after 10 s, and both end
        own = verdict_in(tmp_path / "node1" / "report.json")
        assert (own["code"], own["culprits"]["nodes"]) == ("LNK002", [1])
    finally:
        for job in jobs:
            if job.poll() is None:
                os.kill(job.pid, signal.SIGTERM)
            end_group(job)
