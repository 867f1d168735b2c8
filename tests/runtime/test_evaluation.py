"""Evaluations under the runtime library: the parts that are pure, and faults in real jobs over Gloo."""

import collections
import copy
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allready.errors import UsageError
from allready.runtime import batches, evaluation, tally
from tests.cases import cases
from tests.runtime.evaluating import SIZE, STEPS, Jobs, fault_of, finishes, jobs, oracle, problems
from tests.runtime.job import Job

Pair = collections.namedtuple("Pair", ["x", "y"])  # noqa: PYI024 - as loaders make them


@pytest.mark.torch
def test_batches_are_cut_as_loaders_make_them() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.arange(7), torch.arange(14).view(7, 2)
    for batch in ([x, y], (x, y), {"x": x, "y": y, "name": "same"}, Pair(x, y), {"pair": (x, [y])}):
        parts = batches.split(batch, 3)
        assert [batches.num_samples(p) for p in parts] == [2, 2, 3]
        assert all(type(p) is type(batch) for p in parts)
    parts = batches.split({"x": x, "y": y, "name": "same", "scale": torch.ones(3)}, 2)
    assert torch.equal(torch.cat([p["x"] for p in parts]), x)
    assert torch.equal(torch.cat([p["y"] for p in parts]), y)
    assert {p["name"] for p in parts} == {"same"}
    assert {len(p["scale"]) for p in parts} == {3}
    assert batches.split(["a", "b", "c"], 2) == [["a"], ["b", "c"]]
    assert [len(p) for p in batches.split(x, 100)] == [1] * 7
    for whole in (5, "text", torch.tensor(3.0), x[:1]):
        assert batches.split(whole, 4) == [whole]
        assert batches.num_samples(whole) == 1


def test_means_are_weighted_and_coverage_is_known_or_not() -> None:
    sums = tally.total([tally.weighed({"loss": 1.0}, 3), tally.weighed({"loss": 5.0, "rare": 2}, 1)])
    assert tally.means(sums) == {"loss": 2.0, "rare": 2.0}
    assert tally.weighed(None, 2) == {}
    with pytest.raises(TypeError, match="mapping"):
        tally.weighed(3.0, 1)
    for value in ({"top1": 0.5}, "none", [0.5, 0.25]):
        with pytest.raises(TypeError, match="metric accuracy is not a number"):
            tally.weighed({"loss": 1.0, "accuracy": value}, 1)
    empty = tally.weighed({"loss": math.nan}, 0)
    assert tally.means(tally.total([sums, empty])) == {"loss": 2.0, "rare": 2.0}
    for weight in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="weight"):
            tally.weighed({"loss": 1.0}, weight)
    assert tally.coverage(3, {0: 2, 1: 2}) == 0.75
    assert tally.coverage(3, {0: 2, 1: None}) is None
    assert tally.coverage(0, {0: 0}) == 1.0


def test_an_iterator_is_refused_because_it_cannot_be_gone_through_again() -> None:
    from allready.runtime.evaluation import resilient_evaluation

    @resilient_evaluation
    def evaluate(batch: Any) -> dict[str, float]:
        return {}

    with pytest.raises(UsageError, match="only once"):
        evaluate(iter([1, 2]), step=3)


def test_a_method_is_decorated_as_a_function_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        scale = 3

        @evaluation.resilient_evaluation(retries=1)
        def evaluate(self, batch: int) -> dict[str, int]:
            """One batch."""
            return {"loss": self.scale * batch}

    monkeypatch.setattr(
        evaluation, "_evaluate", lambda fn, batches, step, options: (fn(batches[0]), step, options.retries)
    )
    found: Any = Model().evaluate([5], step=7)
    assert found == ({"loss": 15}, 7, 1)
    assert (Model.evaluate.__name__, Model.evaluate.__doc__) == ("evaluate", "One batch.")


@evaluation.resilient_evaluation
def loss(batch: int) -> dict[str, int]:
    return {"loss": batch}


class Scaled:
    scale = 2

    @evaluation.resilient_evaluation(retries=1)
    def loss(self, batch: int) -> dict[str, int]:
        return {"loss": self.scale * batch}


def test_what_is_decorated_is_pickled_and_copied_as_a_function_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a process that `spawn` starts; a method goes with its object."""
    monkeypatch.setattr(evaluation, "_evaluate", lambda fn, batches, step, _: (fn(batches[0]), step))
    assert pickle.loads(pickle.dumps(loss)) is copy.deepcopy(loss) is loss
    scaled = Scaled()
    scaled.scale = 5
    for method in (pickle.loads(pickle.dumps(scaled.loss)), copy.deepcopy(scaled.loss)):
        scaled.scale = 7
        assert method([1], step=3) == ({"loss": 5}, 3)
        scaled.scale = 5


def test_a_loader_is_not_started_before_the_ranks_have_met() -> None:
    """Its workers would be processes for nothing."""
    from allready.runtime.evaluation import resilient_evaluation

    class Loader:
        def __iter__(self) -> Any:
            raise AssertionError("started")

    with pytest.raises(UsageError, match="init_process_group"):
        resilient_evaluation(lambda batch: {}, Loader(), step=0)


def at(kind: str, seed: int, step: int, **more: Any) -> dict[str, Any]:
    return {**fault_of(kind, seed), "kind": kind, "step": step, **more}


@pytest.mark.torch
@pytest.mark.newest
@pytest.mark.jobs
@pytest.mark.timeout(300)
def test_training_goes_on_whatever_happens_in_an_evaluation_and_in_a_loop() -> None:
    """Two jobs, one after the other in one program, which imports torch once."""
    with jobs() as runner:
        check_evaluations(runner)
        check_loop(runner)


def check_evaluations(runner: Jobs) -> None:
    faults = [at("skip", 1, 6), at("skip-collective", 4, 12), at("raise", 3, 18), at("die", 2, 0)]
    assert problems(runner.run(seed=1, faults=faults)) == []


def check_loop(runner: Jobs) -> None:
    """An exception, workers of a loader, then a death, then a signal to one rank, twice."""
    faults = [struck("crash", 1, 3), struck("fork", 0, 4), struck("kill", 2, 8), struck("signal-again", 3, 13)]
    found = runner.run(seed=1, loop=True, faults=faults)
    assert found["ends"] == [143, 143, -9, 143], found
    assert {e["step"] for e in of(found, "saved").values()} == {14}
    recovered = {(e["recovered"], e["size"], e["step"]) for e in of(found, "recovered").values() if e["rank"] != 2}
    assert recovered == {(0, 3, 8), (1, 3, 8), (2, 3, 8)}
    assert of(found, "loaded")[0]["loaded"] == 4
    losses, results = oracle(1)
    for rank, event in of(found, "saved").items():
        first = [event["losses"][str(n)] for n in range(8)]
        assert first == pytest.approx([losses[n][rank] for n in range(8)], 1e-3)
        assert [o["step"] for o in event["outcomes"]] == [6, 12]
        assert event["outcomes"][0]["eval/loss"] == pytest.approx(results[6], 1e-3)


def of(found: dict[str, Any], key: str) -> dict[int, dict[str, Any]]:
    """The last event of each rank that has this key."""
    return {event["rank"]: event for event in found["said"] if key in event}


def struck(kind: str, rank: int, step: int) -> dict[str, Any]:
    return {"kind": kind, "rank": rank, "step": step}


def longer(test: Callable[..., None]) -> Callable[..., None]:
    """What CI has no time for."""
    for mark in (pytest.mark.torch, pytest.mark.jobs, pytest.mark.slow, pytest.mark.timeout(600)):
        test = mark(test)
    return test


@longer
@cases("kind", ["skip", "raise", "stop", "die"])
def test_each_fault_at_several_places(kind: str) -> None:
    with jobs() as runner:
        for seed in range(50, 54):
            assert problems(runner.run(seed=seed, faults=[fault_of(kind, seed)])) == []


@longer
def test_the_smallest_example_survives_what_the_same_script_without_it_does_not() -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / "benchmarks/ddp_min_table.py"), "--faults", "killed", "raises"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    killed, raised = [row.split(" | ") for row in done.stdout.splitlines()]
    assert killed[1].startswith("3 ranks did all 60 steps, 3 ended with 0;"), done
    assert raised[1].startswith("4 ranks did all 60 steps, 4 ended with 0;"), done
    assert [row[2][:4] for row in (killed, raised)] == ["lost", "lost"], done


@longer
@cases("kind", ["skip", "raise", "stop"])
def test_plain_torch_does_not_survive_it(kind: str) -> None:
    with jobs() as runner:
        assert not finishes(runner.run(seed=60, faults=[fault_of(kind, 60)], plain=True))


@longer
def test_what_was_evaluated_counts_where_a_batch_always_fails_and_a_rank_is_lost() -> None:
    with jobs() as runner:
        assert problems(runner.run(seed=3, faults=[at("poison", 1, 6, batch=2), at("stop", 7, 12)])) == []


@longer
def test_an_exception_stays_on_its_rank_where_the_function_does_not_communicate() -> None:
    with jobs() as runner:
        faults = [at("poison", 2, 6), at("raise", 5, 12, again=True)]
        assert problems(runner.run(seed=2, faults=faults, alone=True)) == []


@longer
def test_a_second_signal_ends_a_rank_that_blocks_and_the_others_go_on() -> None:
    with jobs() as runner:
        found = runner.run(seed=2, loop=True, faults=[struck("two-signals", 1, 4), struck("sleep", 3, 4)])
    assert found["ends"] == [0, 130, 0, 0], found
    assert [e["step"] for e in of(found, "saved").values()] == [STEPS] * (SIZE - 1)
    assert {e["step"] for e in of(found, "recovered").values()} == {4}


@pytest.mark.torch
@pytest.mark.newest
@pytest.mark.jobs
@pytest.mark.slow
def test_loaders_that_do_not_say_how_long_they_are_and_who_alone_has_an_error_of_its_own(tmp_path: Path) -> None:
    """What a rank raises because another one did is no error of the evaluation's."""
    whole = {"coverage": 1.0, "is_partial": False, "has_failed": False, "attempts": 2}
    part = {"coverage": None, "is_partial": True, "has_failed": False}
    with Job(tmp_path, 3, script="loaders_rank.py") as job:
        job.wait([0, 1, 2], 90.0)
        for rank in range(3):
            found = {e.pop("event"): e for e in job.events(rank)}
            assert found["once"] == whole
            assert found["once errors"] == {"ranks": [1], "metrics": {"loss": 1.5}}
            assert found["unknown"] == {**whole, "attempts": 1}
            assert found["broken"] == {**part, "attempts": 4}
            assert found["broken errors"]["ranks"] == [1]
            assert found["alone"] == {**part, "attempts": 1}
            assert found["alone errors"]["ranks"] == [1]
