"""A benchmark's run: every operation on real ranks, wrong results, and a rank that stops in the middle of one."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allready.model import CollectiveRun
from allready.model.operations import OPERATIONS, SWEEPS
from allready.preflight.collectives.hub import conduct
from allready.preflight.collectives.spec import BENCH_STAGES
from allready.preflight.collectives.variants import ask_nccl, with_choices
from tests.messaging.memory import silent
from tests.preflight.collectives.cluster import agents, hook_all_reduce, run, spec

pytestmark = [pytest.mark.torch, pytest.mark.jobs]

BENCH: dict[str, Any] = {"is_bench": True, "stages": BENCH_STAGES["gloo"]}


def test_three_ranks_on_two_nodes_measure_every_operation_with_right_results() -> None:
    sizes: dict[str, Any] = {"min_bytes": 100, "max_bytes": 25_600, "factor": 16, "iters": 4, "warmup": 1}
    result = asyncio.run(run(spec({0: 2, 1: 1}, dtype="float16", **sizes, **BENCH)))
    assert [(s.name, s.outcome) for s in result.stages] == [(name, "ok") for name in BENCH_STAGES["gloo"]]
    assert set(result.copies_gb_per_s) == {0, 1, 2}
    assert all(speed > 0 for speeds in result.copies_gb_per_s.values() for speed in speeds.values())
    for operation in OPERATIONS.values():
        points = [p for p in result.points if p.operation == operation.name]
        assert [p.size_bytes for p in points] == ([96, 1596, 25_596] if operation.is_split else [100, 1600, 25_600])
        factor = {"all_reduce": 4 / 3, "all_gather": 2 / 3, "reduce_scatter": 2 / 3, "all_to_all": 2 / 3}
        for p in points:
            assert (p.num_errors, p.num_iterations, p.dtype) == (0, 4, "float16"), operation.name
            assert p.busbw_gb_per_s == pytest.approx(factor.get(operation.name, 1.0) * p.size_bytes / p.time_s / 1e9)
            assert (p.other_form is not None) == (operation.name in {"all_gather", "reduce_scatter"})
            if p.other_form is not None:  # torch has both forms of these
                assert (p.other_form.in_place, p.other_form.num_errors) == (True, 0)
                assert p.other_form.busbw_gb_per_s == pytest.approx(2 / 3 * p.size_bytes / p.other_form.time_s / 1e9)
            assert p.spread is not None
            assert 0 < p.spread.min_s <= p.spread.median_s <= p.spread.p99_s <= p.spread.max_s


def test_a_rank_stopped_in_all_gather_is_named_with_stage_and_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stop = "if rank == 2 and number == 5: os.kill(os.getpid(), signal.SIGSTOP)"
    hook_all_reduce(monkeypatch, tmp_path, before=stop, name="all_gather_into_tensor")
    sizes: dict[str, Any] = {"min_bytes": 3072, "max_bytes": 3072, "iters": 8, "warmup": 2}
    bad = asyncio.run(run(spec({0: 2, 1: 1}, **sizes, **BENCH))).bad
    assert bad is not None
    assert (bad.name, bad.outcome, bad.size_bytes, bad.culprits) == ("all_gather", "hung", 3072, (2,))
    assert bad.iteration == 4  # the first three are the checked one and those that tell how long one takes
    assert [(s.rank, s.state) for s in bad.ranks] == [(2, "stopped")]


@pytest.mark.slow
def test_what_nccl_says_in_the_output_of_a_rank_is_in_the_rows_and_beside_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """NCCL's lines, recorded from 2.32.3, are printed by ranks of Gloo where the variables ask for them."""
    say = (
        "if os.environ.get('NCCL_DEBUG') == 'INFO' and rank == 0: size = args[0].numel() * 4; "
        "print(f'n:1:1 [0] NCCL INFO AllReduce: {size} Bytes -> Algo TREE proto LL channel{{Lo..Hi}}={{0..1}}'); "
        "print('n:1 NCCL DIAG [OK]   p2p: verified P2P access in both directions between every GPU pair (2 peer "
        "accesses)', flush=True)"
    )
    hook_all_reduce(monkeypatch, tmp_path, before=say)
    sizes: dict[str, Any] = {"min_bytes": 1024, "max_bytes": 4096, "factor": 4, "iters": 3, "warmup": 1}
    asked = spec({0: 1, 1: 1}, **sizes, is_bench=True, stages=BENCH_STAGES["gloo"][: 1 + BENCH_STAGES["gloo"].index(
        "sweep")])  # fmt: skip

    async def both() -> tuple[CollectiveRun, CollectiveRun]:
        async with agents(2) as (hub, _):
            first = await conduct(hub, asked, silent())
            return first, await ask_nccl(hub, asked, silent())

    first, answer = asyncio.run(both())
    assert {(p.algorithm, p.protocol) for p in first.points} == {("", "")}
    named = with_choices(first, answer)
    assert [(p.size_bytes, p.algorithm, p.protocol) for p in named.points] == [(s, "TREE", "LL") for s in (1024, 4096)]
    assert [p.time_s for p in named.points] == [p.time_s for p in first.points]
    assert [(d.level, d.check, d.kind) for d in answer.diagnostics] == [("OK", "p2p", "")]


def test_every_operation_accepts_its_own_result_and_no_other() -> None:
    torch = pytest.importorskip("torch")
    from allready.preflight.collectives.operations import Buffers, Pattern, RankOperation

    n, size_bytes, device = 3, 12 * 500, torch.device("cpu")
    dtypes = ("float32", "bfloat16", "int8", "float64")
    patterns = {(rank, dtype): Pattern(torch, rank, n, device, dtype) for rank in range(n) for dtype in dtypes}
    for name, operation in OPERATIONS.items():
        for dtype in dtypes:
            ranks = []
            for rank in range(n):
                buffers = Buffers(torch, device, dtype, size_bytes, needs_two=not operation.in_place)
                calls = SimpleNamespace(P2POp=lambda *_a, **_k: None, isend=0, irecv=0, **dict.fromkeys(_CALLS))
                one = RankOperation(name, calls, None, patterns[rank, dtype], rank, n, buffers)
                one.bind(size_bytes)
                one.fill()
                ranks.append(one)
            results = _done(torch, name, [(r._in.clone(), r._out.clone()) for r in ranks])
            for rank, (one, result) in enumerate(zip(ranks, results, strict=True)):
                if name == "reduce" and rank:
                    continue
                one._out.copy_(result)
                assert one.check() == (0, ""), (name, dtype, rank)
                one._out[-1] += 1
                assert one.check()[0] == 1, (name, dtype, rank)


_CALLS = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast", "reduce")


def _done(torch: Any, name: str, buffers: list[tuple[Any, Any]]) -> list[Any]:
    """What each rank must have, made without the code under test."""
    inputs = [given for given, _ in buffers]
    n = len(inputs)
    total = sum(inputs[1:], start=inputs[0].clone())
    return {
        "all_reduce": lambda: [total] * n,
        "reduce": lambda: [total] * n,
        "broadcast": lambda: [inputs[0]] * n,
        "all_gather": lambda: [torch.cat(inputs)] * n,
        "reduce_scatter": lambda: list(total.chunk(n)),
        "all_to_all": lambda: [torch.cat([given.chunk(n)[rank] for given in inputs]) for rank in range(n)],
        "sendrecv": lambda: [inputs[(rank - 1) % n] for rank in range(n)],
    }[name]()


def test_every_operation_has_a_stage_of_its_own() -> None:
    assert list(SWEEPS.values()) == list(OPERATIONS)
    assert set(SWEEPS) <= set(BENCH_STAGES["gloo"])
