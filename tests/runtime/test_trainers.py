"""Our callbacks in real trainers of others, on two ranks: they stop alike and fail alike."""

import importlib.util
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from allready.errors import UsageError
from allready.integrations import hugging_face_callback, lightning_callback, trainers
from allready.runtime.stopping import StopSignals
from tests.runtime.job import Job


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"needs {name}")


TRAINERS = [
    pytest.param("hugging_face", marks=[pytest.mark.slow, needs("accelerate")]),
    pytest.param("lightning", marks=[pytest.mark.slow, needs("lightning")]),
    "hugging_face_calls",
    "lightning_calls",
]
"""The last two make the same calls as those trainers, where they are not installed."""


@pytest.mark.torch
@pytest.mark.jobs
@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(("kind", "victim"), [("SIGTERM", 1), pytest.param("SIGKILL", 1, marks=pytest.mark.slow)])
def test_ranks_of_a_trainer_stop_alike_and_fail_alike(trainer: str, kind: str, victim: int, tmp_path: Path) -> None:
    with Job(
        tmp_path, 2, script="trainer_rank.py", trainer=trainer, signal=kind, victim=victim, where=str(tmp_path / "out")
    ) as job:
        if kind == "SIGKILL":
            job.wait([0])
            failed = {"event": "failed", "is_default": True, "code": "RTM001", "culprits": [1]}
            assert job.last(0, "failed") == failed
            return
        job.wait([0, 1])
        for rank in (0, 1):
            done = job.last(rank, "done")
            assert done["steps"] == 5
            assert done["saved"] == (["checkpoint-5"] if trainer.startswith("hugging_face") else [])
            assert (done["exit_code"], done["is_default"]) == (143, True)


@pytest.mark.torch
@pytest.mark.jobs
@pytest.mark.parametrize(
    "is_real", [False, pytest.param(True, marks=[pytest.mark.slow, pytest.mark.timeout(300), needs("torchft")])]
)
def test_a_failure_within_a_replica_group_drops_its_step_in_torchft_with_our_verdict(
    is_real: bool, tmp_path: Path
) -> None:
    """Without torchft: one replica group, and an object with those methods of its manager that are called."""
    ranks = list(range(4 if is_real else 2))
    plan: dict[str, Any] = {"real": is_real, "victim": 1, "where": str(tmp_path)}
    with Job(tmp_path, len(ranks), script="torchft_rank.py", **plan) as job:
        job.wait(ranks)
        for rank in (0, 1):
            assert job.last(rank, "failed") == {"event": "failed", "step": 3, "code": "RTM002", "culprits": [1]}
            assert "made by the test" in job.last(rank, "dropped")["error"]
        for rank in ranks:
            assert job.last(rank, "dropped")["step"] == 3
            assert job.last(rank, "dropped")["took_s"] < 30.0, "others wait for torchft's timeout, 60 s"
            assert job.last(rank, "done") == job.last(0, "done")
            assert job.last(rank, "done")["steps"] == 8
        if not is_real:
            assert [job.last(rank, "aborts")["num"] for rank in ranks] == [1, 1]


def test_a_trainer_in_another_thread_stops_by_signals_to_other_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "joined", lambda: None)
    monkeypatch.setattr(StopSignals, "agreed", lambda _: signal.SIGTERM)
    before, found = signal.getsignal(signal.SIGTERM), list[int]()
    steps = trainers.TrainerSteps(1)

    def train() -> None:
        steps.begin()
        found.append(steps.done())
        steps.end()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(30)
    assert (found, steps.exit_code) == ([signal.SIGTERM], 143)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_trainer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for make, module in ((hugging_face_callback, "transformers"), (lightning_callback, "lightning.pytorch")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(UsageError, match=f"{module} is not installed"):
            make()
        monkeypatch.undo()
