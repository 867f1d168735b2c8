"""Staged collectives with real NCCL on the GPUs of this machine."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from allready.model.operations import OPERATIONS
from allready.preflight.collectives import wire
from allready.preflight.collectives.hub import conduct
from allready.preflight.collectives.nccl_operations import ONLY_OUT_OF_PLACE
from allready.preflight.collectives.spec import BENCH_STAGES, STAGES
from allready.units import GIB, MIB
from tests.messaging.memory import silent
from tests.preflight.collectives.cluster import agents, rank_processes, run, spec

pytestmark = pytest.mark.gpu

_PLAIN = """
import json, os, sys
import torch, torch.distributed as dist
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
times = {}
for size in map(int, sys.argv[1:]):
    x = torch.zeros(size // 4, device="cuda")
    for _ in range(5):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    dist.barrier()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(20):
        dist.all_reduce(x)
    end.record()
    torch.cuda.synchronize()
    took = torch.tensor([begin.elapsed_time(end) / 1e3 / 20], device="cuda")
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    times[size] = took.item()
if dist.get_rank() == 0:
    print("TIMES " + json.dumps(times), flush=True)
dist.destroy_process_group()
"""


def record(what: object) -> None:
    """Show a measured result in the output of `pytest -rP`."""
    sys.stdout.write(f"{what}\n")


def num_gpus() -> int:
    """How many GPUs torch sees; asked in another process, so that this one never touches CUDA."""
    words = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    return int(subprocess.run(words, capture_output=True, text=True, timeout=100, check=True).stdout)


@pytest.fixture(scope="module")
def gpus() -> int:
    found = num_gpus()
    if found < 2:
        pytest.skip(f"needs 2 GPUs, torch sees {found}")
    return found


def plain_times(folder: Path, gpus: int, sizes: tuple[int, ...]) -> dict[int, float]:
    """Seconds of one all_reduce by size, from a plain torch loop under torchrun."""
    script = folder / "plain.py"
    script.write_text(_PLAIN)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(gpus),
            str(script),
            *map(str, sizes),
        ],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    line = next((row for row in done.stdout.splitlines() if row.startswith("TIMES ")), None)
    assert line is not None, done.stderr[-2000:]
    return {int(k): v for k, v in json.loads(line[6:]).items()}


def test_busbw_is_within_3_percent_of_a_plain_torch_loop(gpus: int, tmp_path: Path) -> None:
    asked = spec({0: gpus}, "nccl", min_bytes=MIB, max_bytes=GIB, iters=20, warmup=5)
    before = plain_times(tmp_path, gpus, asked.sizes())
    result = asyncio.run(run(asked))
    after = plain_times(tmp_path, gpus, asked.sizes())
    assert [(s.name, s.outcome) for s in result.stages] == [(name, "ok") for name in STAGES["nccl"]]
    assert [p.num_errors for p in result.points] == [0] * 11
    rows = [
        (p.size_bytes, p.time_s, before[p.size_bytes], after[p.size_bytes], p.busbw_gb_per_s) for p in result.points
    ]
    table = "\n".join(f"{s:>11} B  ours {t:.3e}  plain {b:.3e} {a:.3e}  busbw {w:8.2f}" for s, t, b, a, w in rows)
    record(table)
    for size_bytes, ours_s, *plain_s, _ in rows:
        if size_bytes >= 32 * MIB:  # below, the launch of a kernel is timed, and differs from run to run by more
            assert min(plain_s) / 1.03 <= ours_s <= max(plain_s) * 1.03, table


@pytest.mark.parametrize("path", ["torch", "nccl"])
@pytest.mark.parametrize("is_graph", [False, True])
def test_each_way_of_calling_nccl_gives_right_results_on_one_gpu(path: str, *, is_graph: bool) -> None:
    if num_gpus() < 1:
        pytest.skip("torch sees no GPU")
    sizes: dict[str, Any] = {"min_bytes": 1024, "max_bytes": 16 * MIB, "factor": 128, "iters": 10, "warmup": 2}
    asked = spec({0: 1}, "nccl", path=path, is_graph=is_graph, is_bench=True, stages=BENCH_STAGES["nccl"], **sizes)
    result = asyncio.run(run(asked))
    assert [(s.name, s.outcome) for s in result.stages] == [(name, "ok") for name in BENCH_STAGES["nccl"]]
    assert {p.num_iterations for p in result.points} == {50 if is_graph else 10}
    assert sum(p.num_errors for p in result.points) == 0
    others = {p.operation: p.other_form for p in result.points}
    expected = set(OPERATIONS) - ONLY_OUT_OF_PLACE if path == "nccl" else {"all_gather", "reduce_scatter"}
    assert {name for name, form in others.items() if form is not None} == expected
    assert all(form.num_errors == 0 and form.time_s > 0 for form in others.values() if form is not None)


def test_a_stopped_rank_in_the_nccl_sweep_is_named_and_all_are_ended(gpus: int) -> None:
    stopped: list[float] = []

    def stop_rank_1(node_rank: int, kind: str, body: Any) -> None:
        if kind == wire.PROGRESS and not stopped and any(p["rank"] == 1 for p in body["positions"]):
            stopped.append(time.monotonic())
            rank_processes()[1].send_signal(signal.SIGSTOP)

    asked = spec(
        {0: 1, 1: 1},
        "nccl",
        min_bytes=256 * MIB,
        max_bytes=256 * MIB,
        iters=5000,
        size_budget_s=1000.0,
        devices={0: ("0",), 1: ("1",)},
    )
    bad = asyncio.run(run(asked, watch=stop_rank_1)).bad
    assert time.monotonic() - stopped[0] < 10
    assert bad is not None
    record(bad)
    assert (bad.name, bad.outcome, bad.culprits) == ("sweep", "hung", (1,))
    [state] = [s for s in bad.ranks if s.rank == 1]
    assert (bad.size_bytes, state.state) == (256 * MIB, "stopped")
    last = int(state.step.split()[3])  # the last operation that rank 1 gave to its GPU, or was about to give
    assert bad.iteration in {last, last + 1}


def test_more_ranks_than_gpus_fail_at_the_device_stage(gpus: int) -> None:
    bad = asyncio.run(run(spec({0: gpus + 1}, "nccl", stages=("import", "device")))).bad
    assert bad is not None
    assert (bad.name, bad.outcome, bad.culprits) == ("device", "failed", (gpus,))
    assert f"local rank {gpus} needs GPU {gpus}, but torch sees only {gpus}" in bad.detail


def test_the_same_gpu_for_two_ranks_fails_at_nccl_init_in_its_own_words(gpus: int) -> None:
    asked = spec({0: 2}, "nccl", stages=STAGES["nccl"][:-1], devices={0: ("0", "0")})
    bad = asyncio.run(run(asked)).bad
    assert bad is not None
    record(bad)
    assert (bad.name, bad.outcome) == ("nccl_init", "failed")
    assert any("Duplicate GPU" in (s.error or "") for s in bad.ranks)


def test_transports_switched_off_still_pass(gpus: int) -> None:
    async def main() -> None:
        async with agents(1) as (hub, _):
            extra = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
            asked = spec({0: 2}, "nccl", stages=STAGES["nccl"][:-1], extra_env=extra)
            result = await conduct(hub, asked, silent())
            record([(s.name, round(s.duration_s, 2)) for s in result.stages])
            assert result.bad is None

    def of_nccl() -> set[str]:  # other programs make and remove their own meanwhile
        return {name for name in os.listdir("/dev/shm") if name.startswith("nccl-")}  # noqa: PTH208

    before = of_nccl()
    asyncio.run(main())
    assert of_nccl() <= before
