"""examples/rvq: it learns, its options do what they say, and it stops and goes on."""

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clock import until

pytestmark = [pytest.mark.torch]
FOLDER = Path(__file__).resolve().parents[1] / "examples" / "rvq"


@pytest.fixture
def rvq(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that gives one of the example's modules."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("options", "model", "data")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


def test_the_loss_falls_and_more_codes_are_used(rvq: Any) -> None:
    import torch

    torch.manual_seed(0)
    options = rvq("options").parse(["--batch-size", "8"])
    codec = rvq("model").Codec(2, 32, lambda sums: None)
    batches = rvq("data").Batches(options, rank=0, num_ranks=1).from_step(0)
    optimizer = torch.optim.Adam(codec.parameters(), lr=4e-3)
    [clips] = rvq("data").held_out(options, rank=0, num_ranks=1, num_batches=1)

    def evaluated() -> tuple[float, int]:
        codec.eval()
        with torch.no_grad():
            loss, _, numbers = codec(clips)
        codec.train()
        return loss.item(), sum(len(of_one.unique()) for of_one in numbers)

    before_loss, before_used = evaluated()
    for _ in range(60):
        optimizer.zero_grad()
        loss, commitment, _ = codec(next(batches))
        (loss + 0.25 * commitment).backward()
        optimizer.step()
    after_loss, after_used = evaluated()
    assert after_loss < before_loss / 3
    assert after_used > before_used + 10


def test_every_way_of_loading_gives_the_same_batches_and_ranks_have_different_ones(rvq: Any) -> None:
    import torch

    options, data = rvq("options"), rvq("data")
    assert options.parse(["--preset", "conservative"]).batch_size == 8
    assert options.parse(["--preset", "gpu_cache", "--batch-size", "5"]).batch_size == 5
    small = ["--batch-size", "3", "--multi-length-training"]

    def first(more: list[str], rank: int = 0) -> list[Any]:
        found = data.Batches(options.parse([*small, *more]), rank=rank, num_ranks=2, num_clips=12).from_step(4)
        batches = [next(found) for _ in range(3)]
        found.close()
        return batches

    plain = first([])
    assert [tuple(b.shape) for b in plain] == [(3, 32, 32), (3, 64, 32), (3, 16, 32)]
    for more in (["--preset", "gpu_cache", *small], ["--prefetch", "2"]):
        assert all(torch.equal(a, b) for a, b in zip(plain, first(more), strict=True)), more
    assert not any(torch.equal(a, b) for a, b in zip(plain, first([], rank=1), strict=True))


def test_a_batch_that_cannot_be_made_ahead_fails_its_step(rvq: Any, tmp_path: Path) -> None:
    import numpy as np

    options = rvq("options").parse(["--prefetch", "2", "--data", str(tmp_path)])
    np.save(tmp_path / "a.npy", np.full((64, 32), "x"))
    batches = rvq("data").Batches(options, rank=0, num_ranks=1).from_step(0)
    with pytest.raises((TypeError, ValueError)):
        next(batches)


@pytest.mark.parametrize(("words", "text"), [(["--batch-size", "0"], "at least 1"), (["--num-workers", "-1"], "0")])
def test_numbers_that_make_no_sense_are_refused(
    rvq: Any, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        rvq("options").parse(words)
    assert text in capsys.readouterr().err


@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_it_stops_by_a_signal_to_one_rank_and_goes_on_from_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(FOLDER / "train.py")]
    command += ["--folder", str(tmp_path), "--num-steps", "150", "--eval-every", "25", "--preset", "prefetch"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}

    def records() -> list[dict[str, Any]]:
        path = tmp_path / "records.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as job:
        try:
            until(lambda: len(records()) >= 2, 150.0)
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            os.kill(int(children[-1]), signal.SIGTERM)
            out, _ = job.communicate(timeout=100)
        finally:
            job.kill()
    assert job.returncode != 0
    stopped = int(out.rpartition("ended at step ")[2])
    assert 50 <= stopped < 150
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=True)
    assert "ended at step 150" in done.stdout
    steps = [r["step"] for r in records()]
    assert steps == sorted(set(steps))
    assert steps[-1] == 150
    assert records()[-1]["eval/loss"] < records()[0]["eval/loss"] / 2
    assert records()[-1]["eval/codebook_use"] > records()[0]["eval/codebook_use"]
