"""examples/rvq with several ranks on one GPU: it learns, goes on without a rank that is stopped, and resumes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clock import until

pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.timeout(500)]
SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "rvq" / "train.py"


def test_ranks_that_share_a_gpu_learn_and_go_on_without_one_that_is_stopped(tmp_path: Path) -> None:
    words = f"--num-steps 150 --eval-every 25 --preset gpu_cache --timeout-s 20 --folder {tmp_path} --device cuda"
    start = f"NCCL_HOSTID=host$RANK NCCL_SOCKET_IFNAME=lo exec {sys.executable} {SCRIPT} {words}"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--no-python", "bash", "-c"]

    def records() -> list[dict[str, Any]]:
        path = tmp_path / "records.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([*command, start], env=environment, stdout=subprocess.PIPE, text=True) as job:
        stopped = 0
        try:
            until(lambda: len(records()) >= 2, 200.0)
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            stopped = int(children[-1])
            os.kill(stopped, signal.SIGSTOP)
            until(lambda: bool(records()) and records()[-1]["step"] == 150, 200.0)
        finally:
            if stopped:
                os.kill(stopped, signal.SIGKILL)
            out, _ = job.communicate(timeout=60)
    assert "of 2 goes on from step" in out
    assert records()[-1]["eval/loss"] < records()[0]["eval/loss"] / 2
    assert records()[-1]["eval/codebook_use"] > records()[0]["eval/codebook_use"]
