"""Our callbacks in real trainers of others, on two ranks: they stop alike and fail alike."""

import importlib.util
from pathlib import Path

import pytest

from allready.errors import UsageError
from allready.integrations import hugging_face_callback, lightning_callback
from tests.runtime.job import Job


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"needs {name}")


TRAINERS = [
    pytest.param("hugging_face", marks=needs("accelerate")),
    pytest.param("lightning", marks=needs("lightning")),
]


@pytest.mark.torch
@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(("signal", "victim"), [("SIGKILL", 1), ("SIGTERM", 1)])
def test_ranks_of_a_trainer_stop_alike_and_fail_alike(trainer: str, signal: str, victim: int, tmp_path: Path) -> None:
    with Job(
        tmp_path,
        2,
        script="trainer_rank.py",
        trainer=trainer,
        signal=signal,
        victim=victim,
        where=str(tmp_path / "out"),
    ) as job:
        if signal == "SIGKILL":
            job.wait([0])
            assert job.last(0, "failed") == {"event": "failed", "code": "RTM001", "culprits": [1]}
            return
        job.wait([0, 1])
        for rank in (0, 1):
            done = job.last(rank, "done")
            assert done["steps"] == 5
            assert done["saved"] == (["checkpoint-5"] if trainer == "hugging_face" else [])


def test_a_trainer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for make, module in ((hugging_face_callback, "transformers"), (lightning_callback, "lightning.pytorch")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(UsageError, match=f"{module} is not installed"):
            make()
        monkeypatch.undo()
