"""Real ranks, real Gloo and JAX: healthy runs, and ranks that are stopped, killed or raise at an exact place."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from allready.preflight.collectives import wire
from allready.preflight.collectives.agent import take_part
from allready.preflight.collectives.spec import STAGES
from tests.messaging.memory import MemoryHub, silent
from tests.preflight.collectives.cluster import Recorder, hook_all_reduce, rank_processes, run, spec

pytestmark = [pytest.mark.torch, pytest.mark.jobs]

ONE_SIZE: dict[str, Any] = {"min_bytes": 4096, "max_bytes": 4096, "iters": 20, "warmup": 2}


def test_two_nodes_with_three_ranks_pass_every_stage_with_right_results() -> None:
    recorder = Recorder()
    result = asyncio.run(run(spec({0: 2, 1: 1}, min_bytes=1024, max_bytes=65536, size_budget_s=0.2), narrator=recorder))
    assert [(s.name, s.outcome) for s in result.stages] == [(name, "ok") for name in STAGES["gloo"]]
    assert all(s.entered == s.finished == (0, 1, 2) for s in result.stages)
    assert result.bad is None
    assert [p.size_bytes for p in result.points] == [1024 * 2**i for i in range(7)]
    for point in result.points:
        assert point.num_errors == 0
        assert 1 <= point.num_iterations <= 10
        assert point.algbw_gb_per_s == pytest.approx(point.size_bytes / point.time_s / 1e9)
        assert point.busbw_gb_per_s == pytest.approx(4 / 3 * point.algbw_gb_per_s)
    told = [key for key, _ in recorder.said]
    assert told.count("collectives.stage_done") == len(STAGES["gloo"])
    assert told[-1] == "collectives.done"


@pytest.mark.slow
def test_a_rank_stopped_inside_an_operation_is_named_with_size_and_iteration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stop = "if rank == 1 and number == 9: os.kill(os.getpid(), signal.SIGSTOP)"
    hook_all_reduce(monkeypatch, tmp_path, before=stop)
    seen = StopClock()
    result = asyncio.run(run(spec({0: 1, 1: 1}, **ONE_SIZE), watch=seen))
    bad = result.bad
    assert bad is not None
    assert (bad.name, bad.outcome, bad.size_bytes, bad.iteration) == ("sweep", "hung", 4096, 5)
    assert (bad.entered, bad.finished, bad.culprits) == ((0, 1), (), (1,))
    [state] = bad.ranks
    assert (state.rank, state.node_rank, state.state, state.step) == (1, 1, "stopped", "size 4096 iteration 5")
    assert seen.seconds() < 15  # 2 s, and what the machine adds; its deadline is 20 s


def test_a_rank_stopped_between_two_operations_has_not_entered_the_one_that_the_others_wait_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stop = "if rank == 0 and number == 9: os.kill(os.getpid(), signal.SIGSTOP)"
    hook_all_reduce(monkeypatch, tmp_path, after=stop)
    bad = asyncio.run(run(spec({0: 1, 1: 1}, **ONE_SIZE))).bad
    assert bad is not None
    assert (bad.name, bad.outcome, bad.size_bytes, bad.iteration) == ("sweep", "hung", 4096, 6)
    assert (bad.entered, bad.finished, bad.culprits) == ((1,), (), (0,))
    assert [(s.rank, s.state, s.step) for s in bad.ranks] == [(0, "stopped", "size 4096 iteration 5")]


@pytest.mark.slow
def test_a_killed_rank_comes_first_and_those_that_lost_it_after(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: dict[int, int] = {}
    killed: list[int] = []

    def kill_rank_2(node_rank: int, kind: str, body: Any) -> None:
        if kind != wire.PROGRESS or killed:
            return
        entered.update((p["rank"], p["entered"]) for p in body["positions"])
        if len(entered) == 4 and min(entered.values()) >= 3:  # as node 0 knows them, so that none is older than this
            killed.append(min(entered.values()))
            rank_processes()[2].send_signal(signal.SIGKILL)

    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")  # a user's odd choice must not matter
    monkeypatch.setenv("RANK", "77")
    asked = spec({0: 2, 1: 2}, **(ONE_SIZE | {"iters": 10_000_000, "size_budget_s": 1e6}))
    bad = asyncio.run(run(asked, watch=kill_rank_2)).bad
    assert bad is not None
    assert bad.stuck_s is not None
    assert bad.stuck_s < 20  # 0.5 s on an idle machine; the library's own time limits are minutes
    assert (bad.name, bad.outcome, bad.size_bytes, bad.culprits) == ("sweep", "failed", 4096, (2,))
    assert bad.iteration is not None
    assert killed[0] <= bad.iteration < 10_000_000
    first, *others = bad.ranks
    assert (first.rank, first.node_rank, first.local_rank) == (2, 1, 0)
    assert (first.state, first.signal, first.error) == ("killed", "SIGKILL", None)
    lost = [s for s in others if s.error]  # a rank that is no neighbour of rank 2 may still have been waiting
    assert lost
    assert {(s.state, s.exit_code) for s in lost} == {("exited", 1)}


@pytest.mark.parametrize("end", ["os._exit(3)", "raise RuntimeError('the library broke')"])
def test_an_agent_says_where_a_rank_was_together_with_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str
) -> None:
    hook_all_reduce(monkeypatch, tmp_path, before=f"if number == 9: {end}")

    async def main() -> None:
        hub = MemoryHub(1)
        never = 3600.0  # positions are not due by themselves
        body = {
            "run": "1-1",
            "label": "all",
            "backend": "gloo",
            "stages": STAGES["gloo"],
            "first_rank": 0,
            "num_ranks": 1,
            "world_size": 1,
            "num_nodes": 1,
            "master_addr": "127.0.0.1",
            "sizes": (4096,),
            "iters": 20,
            "warmup": 2,
            "size_budget_s": 3600.0,
            "positions_every_s": never,
        }
        agent = asyncio.create_task(take_part(hub.ends[0], body, narrator=silent()))
        told: list[dict[str, Any]] = []
        while not told or not {e["event"] for e in told[-1]["events"]} & {"error", "gone"}:
            _, kind, progress = await hub.receive(timeout_s=60)
            assert kind == wire.PROGRESS
            told.append(progress)
        assert [p["positions"] for p in told[:-1] if p["positions"]] == []
        assert [(p["size_bytes"], p["entered"], p["done"]) for p in told[-1]["positions"]] == [(4096, 5, 4)]
        await hub.send(0, wire.STOP, {"run": "1-1"})
        assert await agent is None

    asyncio.run(main())


def test_a_rank_that_raises_is_named_with_its_error_and_not_the_one_that_lost_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hook_all_reduce(monkeypatch, tmp_path, before="assert rank != 0, 'the library <b>broke</b>'")
    bad = asyncio.run(run(spec({0: 1, 1: 1}))).bad
    assert bad is not None
    assert (bad.name, bad.outcome, bad.culprits, bad.entered) == ("gloo_small", "failed", (0,), (0, 1))
    assert (bad.ranks[0].rank, bad.ranks[0].state, bad.ranks[0].exit_code) == (0, "exited", 1)
    assert bad.ranks[0].error == "AssertionError: the library <b>broke</b>"
    assert bad.ranks[0].stack[0].endswith(" before")


def test_a_wrong_result_is_wrong_and_not_ok(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hook_all_reduce(monkeypatch, tmp_path, after="args[0].view(-1)[5:6].add_(1 if (rank, number) == (1, 1) else 0)")
    bad = asyncio.run(run(spec({0: 1, 1: 1}, stages=STAGES["gloo"][:-1]))).bad
    assert bad is not None
    assert (bad.name, bad.outcome, bad.culprits) == ("gloo_small", "wrong", (1,))
    assert bad.detail == "1 of 1024 elements are wrong; first wrong element 5: 19.0 instead of 18.0"


def test_nccl_without_cuda_fails_at_the_device_stage_with_the_reason() -> None:
    import torch

    if torch.version.cuda is not None:
        pytest.skip("this torch has CUDA")
    bad = asyncio.run(run(spec({0: 1}, "nccl"))).bad
    assert bad is not None
    assert (bad.name, bad.outcome, bad.culprits) == ("device", "failed", (0,))
    assert "is built without CUDA" in bad.detail


@pytest.mark.jax
def test_jax_on_two_nodes_sums_over_all_devices() -> None:
    result = asyncio.run(run(spec({0: 1, 1: 1}, "jax")))
    assert [(s.name, s.outcome) for s in result.stages] == [(name, "ok") for name in STAGES["jax"]]
    assert result.stages[-1].detail == "2 devices"


class StopClock:
    """Notes when the agents first saw a stopped rank, less their polling interval."""

    def __init__(self) -> None:
        self._at: float | None = None

    def __call__(self, node_rank: int, kind: str, body: Any) -> None:
        if kind == wire.PROGRESS and self._at is None and any(e["event"] == "stopped" for e in body["events"]):
            self._at = time.monotonic() - 0.5

    def seconds(self) -> float:
        assert self._at is not None
        return time.monotonic() - self._at
