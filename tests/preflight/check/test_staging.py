"""What a request makes of the staged collectives: backend, stages, devices, and which runs."""

from typing import Any

import pytest
from msgspec.structs import replace

from allready.errors import UsageError
from allready.model import (
    CollectiveRun,
    FactMissing,
    GpuFacts,
    LaunchFacts,
    NodeFacts,
    SoftwareFacts,
    StageResult,
    World,
    WorldNode,
)
from allready.preflight.check import staging
from allready.preflight.check.request import COLLECTIVE_STAGES, STAGES, BenchRequest, CheckRequest
from allready.preflight.check.staging import choose_backend, plan, run_collectives, stages_it_has_not
from allready.preflight.collectives import variants
from allready.preflight.collectives.spec import STAGES as STAGES_OF
from allready.text.reasons import not_checked
from tests.cases import cases
from tests.fleets import healthy_node
from tests.messaging.memory import memory_channel, silent

WORLD = World(
    num_nodes=2,
    world_size=4,
    nodes=(WorldNode(node_rank=0, name="gpu0", ranks=(0, 1)), WorldNode(node_rank=1, name="gpu1", ranks=(2, 3))),
)
GPUS = {n: healthy_node(n, 2) for n in range(2)}
ONE_GPU = GpuFacts(gpus=(), driver_version="580", cuda_version="13.0", visible=(0,))
CPU_BUILD = SoftwareFacts(versions={"torch": "2.13.0+cpu"})


def request(**changes: Any) -> CheckRequest:
    launch = LaunchFacts(num_nodes=2, node_rank=0, nproc_per_node=2, master_addr="gpu0", master_port=29500)
    return CheckRequest(launch=launch, **changes)


def with_node_1(**changes: Any) -> dict[int, NodeFacts]:
    return {**GPUS, 1: replace(GPUS[1], **changes)}


def test_everything_is_asked_for_unless_told_otherwise() -> None:
    assert request().stages == STAGES == ("roll", "facts", "reach", "collectives")
    assert request().collective_stages == ()


def test_nccl_where_every_node_can_run_it() -> None:
    assert choose_backend(request(), GPUS) == "nccl"


@cases(
    "facts",
    [
        {},
        with_node_1(gpu=FactMissing("no driver")),
        with_node_1(software=FactMissing("timed out")),
        with_node_1(software=CPU_BUILD),
        with_node_1(gpu=ONE_GPU),
        with_node_1(launch=FactMissing("unknown")),
    ],
    ids=["nobody", "no driver", "unknown software", "cpu build", "one gpu too few", "unknown launch"],
)
def test_gloo_as_soon_as_one_node_cannot_run_nccl(facts: dict[int, NodeFacts]) -> None:
    assert choose_backend(request(), facts) == "gloo"


def test_what_was_asked_for_wins() -> None:
    assert choose_backend(request(backend="gloo"), GPUS) == "gloo"
    assert choose_backend(request(backend="nccl"), {}) == "nccl"
    assert choose_backend(request(framework="jax", backend="nccl"), GPUS) == "jax"


NEEDED = ("import", "device", "store", "gloo_barrier")


@cases(
    ("backend", "asked", "stages"),
    [
        ("gloo", (), STAGES_OF["gloo"]),
        ("nccl", (), STAGES_OF["nccl"]),
        ("gloo", ("import",), ("import",)),
        ("gloo", ("small",), (*NEEDED, "gloo_small")),
        ("nccl", ("small",), (*NEEDED, "nccl_init", "nccl_small")),
        ("nccl", ("nccl_init",), (*NEEDED, "nccl_init")),
        ("gloo", ("sweep",), ("import", "device", "allocate", "store", "gloo_barrier", "sweep")),
        ("gloo", ("gloo_barrier", "allocate"), ("import", "device", "allocate", "store", "gloo_barrier")),
        ("gloo", ("nccl_init",), ("import",)),
    ],
)
def test_stages_are_translated_and_those_they_stand_on_are_added(
    backend: str, asked: tuple[str, ...], stages: tuple[str, ...]
) -> None:
    assert plan(request(backend=backend, collective_stages=asked), WORLD, GPUS).stages == stages


@cases(
    ("asked", "stages"),
    [
        ((), STAGES_OF["jax"]),
        (("import",), ("jax_import",)),
        (("small",), STAGES_OF["jax"]),
        (("sweep", "small"), STAGES_OF["jax"]),
        (("store",), ("jax_import",)),
    ],
)
def test_jax_has_its_own_stages(asked: tuple[str, ...], stages: tuple[str, ...]) -> None:
    assert plan(request(framework="jax", collective_stages=asked), WORLD, GPUS).stages == stages


def test_a_stage_that_the_backend_has_not_is_told_and_never_passed_over() -> None:
    asked = request(collective_stages=("nccl_init", "small"))
    assert list(stages_it_has_not(asked, "gloo")) == ["nccl_init"]
    why = not_checked("nccl_init", stages_it_has_not(asked, "gloo")["nccl_init"]).why
    assert "backend gloo has no such stage" in why
    assert stages_it_has_not(asked, "nccl") == {}
    assert stages_it_has_not(request(), "jax") == {}


@cases("name", COLLECTIVE_STAGES)
def test_every_stage_that_can_be_asked_for_is_one_of_some_backend(name: str) -> None:
    asked = request(collective_stages=(name,))
    assert any(not stages_it_has_not(asked, backend) for backend in STAGES_OF)


def test_numbers_of_the_request_reach_the_plan() -> None:
    spec = plan(
        request(backend="gloo", min_bytes=4096, max_bytes=8192, num_iterations=3, num_warmup=1, stage_deadline_s=7.0),
        WORLD,
        GPUS,
    )
    assert (spec.sizes(), spec.iters, spec.warmup) == ((4096, 8192), 3, 1)
    assert {spec.deadline_s(stage) for stage in spec.stages} == {7.0}
    assert spec.nproc == {0: 2, 1: 2}
    assert spec.master_addr == "gpu0"


def test_only_nccl_has_transports_to_isolate() -> None:
    def asked(**more: Any) -> CheckRequest:
        return request(isolate=True, bench=BenchRequest(), **more)

    assert plan(asked(), WORLD, GPUS).backend == "nccl"
    for more in ({"backend": "gloo"}, {"framework": "jax"}):
        with pytest.raises(UsageError, match="NCCL's transports"):
            plan(asked(**more), WORLD, GPUS)
    alone = World(num_nodes=1, world_size=1, nodes=(WorldNode(node_rank=0, name="gpu0", ranks=(0,)),))
    with pytest.raises(UsageError, match="one rank uses no transport"):
        plan(asked(), alone, GPUS)


def test_paths_graphs_and_questions_are_for_nccl() -> None:
    wanted: tuple[dict[str, Any], ...] = ({"path": "nccl"}, {"is_graph": True}, {"asks_nccl": True})
    for bench in wanted:
        spec = plan(request(bench=BenchRequest(**bench)), WORLD, GPUS)
        assert (spec.path, spec.is_graph) == (bench.get("path", "torch"), bench.get("is_graph", False))
        with pytest.raises(UsageError, match="are for NCCL"):
            plan(request(backend="gloo", bench=BenchRequest(**bench)), WORLD, GPUS)


def test_each_node_keeps_its_own_devices() -> None:
    launch = GPUS[1].launch
    assert isinstance(launch, LaunchFacts)
    assert plan(request(), WORLD, with_node_1(launch=replace(launch, devices=("3", "5")))).devices == {1: ("3", "5")}


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="--min-bytes"):
        plan(request(min_bytes=8192, max_bytes=4096), WORLD, GPUS)


def test_no_size_of_a_benchmark_is_above_what_was_asked_for() -> None:
    small = plan(request(min_bytes=1, max_bytes=7, bench=BenchRequest(dtype="uint8")), WORLD, GPUS)
    assert small.sizes() == (1, 2, 4)
    both = BenchRequest(operations=("all_reduce", "all_gather"))
    spec = plan(request(min_bytes=5, max_bytes=100, bench=both), WORLD, GPUS)
    assert (spec.sizes("all_reduce"), spec.sizes("all_gather")) == ((4, 8, 20, 40, 80), (16, 32, 80))
    with pytest.raises(UsageError, match="all_gather of 4 ranks needs at least 16, one float32 of each"):
        plan(request(min_bytes=4, max_bytes=12, bench=both), WORLD, GPUS)


class Runs:
    """`conduct`, `grow` and `isolate` that only note what they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, broken: bool) -> None:
        self.asked: list[str] = []
        self.broken = broken
        monkeypatch.setattr(staging, "conduct", self._conduct)
        monkeypatch.setattr(variants, "grow", self._grow)
        monkeypatch.setattr(variants, "isolate", self._isolate)

    def run(self, label: str) -> CollectiveRun:
        outcome = "hung" if self.broken else "ok"
        stage = StageResult(name="sweep", outcome=outcome, deadline_s=1.0, duration_s=1.0)
        return CollectiveRun(label=label, backend="gloo", ranks=(0, 1), stages=(stage,))

    async def _conduct(self, *_: Any) -> CollectiveRun:
        self.asked.append("conduct")
        return self.run("all")

    async def _grow(self, *_: Any) -> list[CollectiveRun]:
        self.asked.append("grow")
        return [self.run("grow 1"), self.run("grow 2")]

    async def _isolate(self, _hub: Any, _spec: Any, failed: CollectiveRun, _narrator: Any) -> list[CollectiveRun]:
        self.asked.append(f"isolate {failed.label}")
        return [self.run("isolate NCCL_P2P_DISABLE=1")]

    async def labels(self, **changes: Any) -> list[str]:
        hub, _ = memory_channel(2)
        asked = request(backend="gloo", **changes)
        answer = await run_collectives(hub, asked, plan(asked, WORLD, GPUS), silent())
        return [run.label for run in answer.runs]


async def test_one_run_is_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, broken=False)
    assert await runs.labels(isolate=True) == ["all"]
    assert runs.asked == ["conduct"], "nothing failed, so there is nothing to isolate"


async def test_isolate_repeats_a_run_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, broken=True)
    assert await runs.labels(isolate=True) == ["all", "isolate NCCL_P2P_DISABLE=1"]
    assert runs.asked == ["conduct", "isolate all"]


async def test_after_growing_the_largest_run_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, broken=True)
    assert await runs.labels(grow=True, isolate=True) == ["grow 2", "grow 1", "isolate NCCL_P2P_DISABLE=1"]
    assert runs.asked == ["grow", "isolate grow 2"]


async def test_one_rank_has_nothing_to_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, broken=False)
    monkeypatch.setattr(
        "tests.preflight.check.test_staging.WORLD",
        World(num_nodes=1, world_size=1, nodes=(WorldNode(node_rank=0, name="gpu0", ranks=(0,)),)),
    )
    assert await runs.labels(grow=True) == ["all"]
