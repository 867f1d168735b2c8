"""Evaluations under the runtime library: the parts that are pure, and faults in real jobs over Gloo."""

import collections
from typing import Any

import pytest

from allready.errors import UsageError
from allready.runtime import batches, tally
from tests.cases import cases
from tests.runtime.evaluating import fault_of, finishes, jobs, problems

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


def at(kind: str, seed: int, step: int, **more: Any) -> dict[str, Any]:
    return {**fault_of(kind, seed), "kind": kind, "step": step, **more}


@pytest.mark.torch
@pytest.mark.newest
@pytest.mark.jobs
@pytest.mark.timeout(300)
def test_training_goes_on_whatever_happens_in_an_evaluation() -> None:
    faults = [at("skip", 1, 6), at("skip-collective", 4, 12), at("raise", 3, 18), at("die", 2, 0)]
    local = [at("poison", 2, 6), at("raise", 5, 12, again=True)]
    with jobs() as runner:
        wrong = problems(runner.run(seed=1, faults=faults))
        wrong += problems(runner.run(seed=2, faults=local, alone=True))
    assert wrong == []


@pytest.mark.torch
@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.timeout(600)
@cases("kind", ["skip", "raise", "stop", "die"])
def test_each_fault_at_several_places(kind: str) -> None:
    with jobs() as runner:
        for seed in range(50, 54):
            found = runner.run(seed=seed, faults=[fault_of(kind, seed)])
            assert problems(found) == []
        assert not finishes(runner.run(seed=60, faults=[fault_of(kind, 60)], plain=True)), "plain torch survives it too"


@pytest.mark.torch
@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_was_evaluated_counts_where_a_batch_always_fails_and_a_rank_is_lost() -> None:
    with jobs() as runner:
        assert problems(runner.run(seed=3, faults=[at("poison", 1, 6, batch=2), at("stop", 7, 12)])) == []
