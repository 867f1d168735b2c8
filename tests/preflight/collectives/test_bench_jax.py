"""A benchmark of JAX: psum and all_gather on real ranks, wrong results, and a rank that stops in the middle of one."""

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from allready.cli.main import main
from allready.model.fill import in_english
from allready.model.operations import JAX_OPERATIONS, OPERATIONS
from allready.preflight.collectives import wire
from allready.preflight.collectives.spec import BENCH_STAGES
from tests.preflight.collectives.cluster import rank_processes, run, spec

pytestmark = [pytest.mark.jax, pytest.mark.jobs]

BENCH: dict[str, Any] = {"is_bench": True, "stages": BENCH_STAGES["jax"]}


def test_two_nodes_measure_psum_and_all_gather_with_right_results() -> None:
    sizes: dict[str, Any] = {"min_bytes": 100, "max_bytes": 25_600, "factor": 16, "iters": 4, "warmup": 1}
    result = asyncio.run(run(spec({0: 1, 1: 1}, "jax", dtype="bfloat16", **sizes, **BENCH)))
    assert [(s.name, s.outcome) for s in result.stages] == [(name, "ok") for name in BENCH_STAGES["jax"]]
    assert {p.operation for p in result.points} == set(JAX_OPERATIONS)
    for name in JAX_OPERATIONS:
        points = [p for p in result.points if p.operation == name]
        assert [p.size_bytes for p in points] == [100, 1600, 25_600]
        for p in points:
            assert (p.num_errors, p.num_iterations, p.dtype) == (0, 4, "bfloat16"), name
            factor = OPERATIONS[name].bus_factor(2)
            assert p.busbw_gb_per_s == pytest.approx(factor * p.size_bytes / p.time_s / 1e9)
            assert p.spread is not None


def test_an_operation_accepts_its_own_result_and_no_other() -> None:
    np = pytest.importorskip("numpy")
    jax = pytest.importorskip("jax")
    from allready.preflight.collectives.jax_operations import JaxOperation

    ranks, missed = 3, []
    for name in JAX_OPERATIONS:
        for dtype in ("float32", "bfloat16", "int8"):
            ops, given = [], []
            for rank in range(ranks):
                devices: Any = SimpleNamespace(
                    jax=jax,
                    numpy=np,
                    count=ranks,
                    own_part=lambda x: x,
                    array=lambda own: own,
                    compiled=lambda function, argument: function,
                )
                ops.append(JaxOperation(name, devices, rank, dtype))
                ops[-1].bind(3 * 1000 * np.dtype(jax.numpy.dtype(dtype)).itemsize)
                given.append(ops[-1]._input)
            right = np.concatenate(given) if name == "all_gather" else sum(given[1:], start=given[0])
            for one in ops:
                one._result = right.copy()
                good = one.check()
                one._result[-1] += 1
                few, words = one.check()
                says_first = "first wrong element 2999" in in_english(words)
                one._result = right[:-1]
                if (good, few, says_first, one.check()[0]) != ((0, ""), 1, True, 3000):
                    missed.append((name, dtype, good, few, words))
    assert missed == []


@pytest.mark.slow
def test_a_rank_stopped_in_all_gather_is_named_with_stage_and_size() -> None:
    stopped: list[int] = []

    def watch(_: int, kind: str, body: Any) -> None:
        if kind != wire.PROGRESS or stopped:
            return
        stage = BENCH_STAGES["jax"].index("all_gather")
        if any(p.get("stage") == stage and p.get("entered", 0) > 10 for p in body.get("positions", ())):
            stopped.append(rank_processes()[1].pid)
            os.kill(stopped[0], signal.SIGSTOP)

    sizes: dict[str, Any] = {"min_bytes": 2**20, "max_bytes": 2**20, "iters": 10**6, "warmup": 1}
    bad = asyncio.run(run(spec({0: 1, 1: 1}, "jax", size_budget_s=20.0, **sizes, **BENCH), watch=watch)).bad
    assert stopped
    assert bad is not None
    assert (bad.name, bad.outcome, bad.size_bytes, bad.culprits) == ("all_gather", "hung", 2**20, (1,))
    assert [s.state for s in bad.ranks if s.rank == 1] == ["stopped"]


def test_what_jax_does_not_have_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        (["broadcast"], "broadcast is not measured with JAX; valid: all_reduce, all_gather"),
        (["pairs"], "pairs is measured with torch only"),
        (["predict", "--params", "7e9", "--strategy", "fsdp"], "fsdp needs operations that are not measured with JAX"),
    ]
    for arguments, words in rows:
        assert main(["bench", "--framework", "jax", "--nproc-per-node", "2", *arguments]) == 2
        assert words in capsys.readouterr().err
