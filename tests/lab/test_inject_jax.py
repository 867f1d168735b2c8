"""Faults in JAX processes: a step is a compiled call over several processes."""

import signal
import sys
from pathlib import Path

import pytest

from tests.lab.inject_job import Outcome, play

JOB = (sys.executable, "-u", str(Path(__file__).with_name("inject_jax_job.py")))
pytestmark = [pytest.mark.slow, pytest.mark.jax]


def run(folder: Path, fault: str) -> Outcome:
    outcome = play(folder, [fault], argv=JOB, env={"JAX_PLATFORMS": "cpu"}, timeout_s=40)
    assert outcome.problems == []
    return outcome


def test_without_a_due_fault_all_steps_are_made(tmp_path: Path) -> None:
    outcome = run(tmp_path, "kill rank=1 step=99")
    assert outcome.codes == {0: 0, 1: 0}
    assert outcome.words[0].count("step ") == 15
    assert "step 3 7.0\n" in outcome.words[0]  # (0 + 3) + (1 + 3)


def test_a_process_is_killed_at_its_step(tmp_path: Path) -> None:
    outcome = run(tmp_path, "kill rank=1 step=5")
    assert (outcome.truth[0].rank, outcome.truth[0].step) == (1, 5)
    assert outcome.codes[1] == -signal.SIGKILL
    assert outcome.words[1].count("step ") in {4, 5}


def test_a_process_is_stopped_at_its_step(tmp_path: Path) -> None:
    outcome = run(tmp_path, "sigstop rank=1 step=5")
    assert outcome.truth[0].step == 5
    assert "T" in outcome.history[1]
    assert outcome.words[0].count("step ") == 5


def test_a_skipped_psum_gives_the_old_value_and_shifts_the_process(tmp_path: Path) -> None:
    outcome = run(tmp_path, "skip rank=1 step=5")
    truth = outcome.truth[0]
    assert (truth.status, truth.step, truth.op) == ("injected", 5, "jit")
    assert "step 5 9.0\n" in outcome.words[1]  # that of step 4
    assert "step 5 12.0\n" in outcome.words[0]  # the other's call of step 6
    assert outcome.codes[0] != 0, "the other one waits for a call that never comes"
    assert outcome.words[0].count("step ") == 14


def test_a_process_dies_when_it_imports_jax(tmp_path: Path) -> None:
    outcome = run(tmp_path, "exception rank=1 step=import module=jax message=no_jaxlib")
    assert "no_jaxlib" in outcome.words[1]
    assert outcome.codes[1] == 1
