"""Which runs of the staged collectives a request asks for."""

import ipaddress
from collections.abc import Mapping

from msgspec.structs import replace

from allready import model
from allready.errors import UsageError
from allready.judging.prediction import predict
from allready.messaging.channel import HubSide, Narrator
from allready.model.operations import OPERATIONS, SWEEPS
from allready.preflight.check.request import BenchRequest, CheckRequest
from allready.preflight.collectives import variants
from allready.preflight.collectives.hub import conduct
from allready.preflight.collectives.spec import BENCH_STAGES, DEFAULT_BYTES, STAGES, RunSpec, with_needed
from allready.preflight.collectives.wire import Rail
from allready.text.reasons import reason
from allready.units import GIB, KIB, MIB

SWEEP_S, QUICK_SWEEP_S = 20.0, 10.0
FAULTY_SWEEP_S, EXPLICIT_SWEEP_S = 5.0, 120.0
"""Where a fault is known already; where sizes or repetitions are asked for."""


def choose_backend(request: CheckRequest, facts: Mapping[int, model.NodeFacts]) -> str:
    """jax for --framework jax; else as asked; else nccl where every node could run it, and gloo otherwise."""
    if request.framework == "jax":
        return "jax"
    return request.backend or ("nccl" if facts and all(_has_nccl(node) for node in facts.values()) else "gloo")


def uses_nccl(request: CheckRequest, facts: Mapping[int, model.NodeFacts]) -> bool:
    """Whether the job will use NCCL at all: where it is asked for, or where a GPU is seen and nothing else is asked.

    Wider than `choose_backend`: where torch is not installed here, or a GPU is missing, the paths still are NCCL's.
    """
    if request.backend is not None:
        return request.backend == "nccl"
    return any(isinstance(node.gpu, model.GpuFacts) and node.gpu.visible for node in facts.values())


def _has_nccl(node: model.NodeFacts) -> bool:
    gpu, software, launch = node.gpu, node.software, node.launch
    return (
        isinstance(gpu, model.GpuFacts)
        and isinstance(launch, model.LaunchFacts)
        and len(gpu.visible) >= launch.nproc_per_node
        and isinstance(software, model.SoftwareFacts)
        and "torch-cuda" in software.versions
    )


def plan(
    request: CheckRequest, world: model.World, facts: Mapping[int, model.NodeFacts], *, is_faulty: bool = False
) -> RunSpec:
    """The run of all ranks that the request asks for: all stages unless it names some, and those that these need.

    Args:
        is_faulty: a fault is known already, and the sweep only shows what it costs.

    Raises:
        UsageError: sizes or stages that make no sense together; the message names what is valid.
    """
    backend = choose_backend(request, facts)
    if backend not in STAGES:
        raise UsageError("unknown backend {backend!r}: valid are {stages}", backend=backend, stages=", ".join(STAGES))
    quick, deadline_s, stages = request.quick, request.stage_deadline_s, _stages(request.collective_stages, backend)
    launches = {n: node.launch for n, node in facts.items() if isinstance(node.launch, model.LaunchFacts)}
    min_bytes, max_bytes = request.min_bytes, request.max_bytes
    iters = 10 if quick and backend == "gloo" else 20
    low, high = DEFAULT_BYTES.get((backend, quick), (KIB, MIB))
    spec = RunSpec(
        backend=backend,
        nproc={n.node_rank: len(n.ranks) for n in world.nodes},
        master_addr=request.launch.master_addr,
        stages=STAGES[backend] if stages is None else with_needed(backend, stages),
        names={n.node_rank: n.name for n in world.nodes},
        addresses={n: _addresses(node.net) for n, node in facts.items() if isinstance(node.net, model.NetFacts)},
        devices={n: launch.devices for n, launch in launches.items() if launch.devices},
        min_bytes=min_bytes if min_bytes is not None else low if max_bytes is None else min(low, max_bytes),
        max_bytes=max_bytes if max_bytes is not None else high if min_bytes is None else max(high, min_bytes),
        iters=iters if request.num_iterations is None else request.num_iterations,
        warmup=(2 if quick else 5) if request.num_warmup is None else request.num_warmup,
        size_budget_s=1.0 if quick else 10.0,
        sweep_budget_s=_sweep_budget_s(request, is_faulty=is_faulty),
        stage_deadline_s=dict.fromkeys(STAGES[backend], deadline_s) if deadline_s else {},
        quick=quick,
        is_faulty=is_faulty,
    )
    return spec if request.bench is None else _bench_spec(spec, request, request.bench, facts)


def _bench_spec(
    spec: RunSpec, request: CheckRequest, bench: BenchRequest, facts: Mapping[int, model.NodeFacts]
) -> RunSpec:
    """The run of a benchmark: the stages of its operations, and as much time as it has."""
    if bench.question is not None and spec.world_size < 2:
        raise UsageError("one rank has no collectives to measure: --nproc-per-node from 2")
    if request.isolate and spec.backend != "nccl":
        raise UsageError("--isolate switches NCCL's transports off; these nodes use {backend}", backend=spec.backend)
    if request.isolate and spec.world_size < 2:
        raise UsageError("one rank uses no transport: --isolate needs --nproc-per-node from 2")
    if (bench.path != "torch" or bench.is_graph or bench.asks_nccl) and spec.backend != "nccl":
        raise UsageError(
            "--path nccl, --cuda-graph and --ask-nccl are for NCCL; these nodes use {backend}", backend=spec.backend
        )
    if bench.search:
        return _search_spec(spec, request, bench, facts)
    wanted = {OPERATIONS[name].stage for name in bench.operations}
    low, high = (KIB, GIB if spec.backend == "nccl" else 64 * MIB)
    min_bytes = request.min_bytes if request.min_bytes is not None else min(low, request.max_bytes or high)
    max_bytes = request.max_bytes if request.max_bytes is not None else max(high, min_bytes)
    for name in bench.operations:
        least = OPERATIONS[name].least_bytes(num_ranks=spec.world_size, dtype=bench.dtype)
        if max_bytes < least:
            raise UsageError(
                "--max-bytes {value}: {operation} of {count} ranks needs at least {least}, one {dtype} of each",
                value=max_bytes,
                operation=name,
                count=spec.world_size,
                least=least,
                dtype=bench.dtype,
            )
    return replace(
        spec,
        stages=tuple(s for s in BENCH_STAGES[spec.backend] if s not in SWEEPS or s in wanted),
        stage_deadline_s=dict.fromkeys(BENCH_STAGES[spec.backend], request.stage_deadline_s)
        if request.stage_deadline_s
        else {},
        dtype=bench.dtype,
        factor=bench.factor,
        step_bytes=bench.step_bytes,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        sweep_budget_s=bench.budget_s,
        path=bench.path,
        is_graph=bench.is_graph,
        is_bench=True,
        is_faulty=False,
    )


def _search_spec(
    spec: RunSpec, request: CheckRequest, bench: BenchRequest, facts: Mapping[int, model.NodeFacts]
) -> RunSpec:
    """The run of a search: between nodes one rank of each, so that nothing else shares its NICs; else all ranks.

    Pairs are measured on every rail: with NCCL the first ranks of all nodes are one, the second ones another, because
    NCCL gives each GPU the NIC beside it; with Gloo every network that all nodes share.
    """
    firsts = tuple(ranks[0] for ranks in spec.ranks_of.values())
    size_bytes = request.max_bytes or (MIB if spec.backend == "gloo" else 64 * MIB)
    members = firsts if len(firsts) > 1 else tuple(range(spec.world_size))
    return replace(
        spec,
        stages=("import", "device", "local", "store", bench.search),
        members=members,
        rails=_rails(spec, facts) or (Rail(members=members),),
        sweep_budget_s=bench.budget_s,
        min_bytes=size_bytes,
        max_bytes=size_bytes,
        is_bench=True,
        is_faulty=False,
    )


def _rails(spec: RunSpec, facts: Mapping[int, model.NodeFacts]) -> tuple[Rail, ...]:
    """The networks between the nodes; () where there is one, or one node."""
    if len(spec.nproc) < 2:
        return ()
    if spec.backend == "nccl":
        most = max(spec.nproc.values())
        columns = [tuple(ranks[i] for ranks in spec.ranks_of.values() if len(ranks) > i) for i in range(most)]
        found = tuple(Rail(members=c, name=f"local rank {i}") for i, c in enumerate(columns) if len(c) > 1)
        return found if len(found) > 1 else ()
    if any(
        not isinstance(node.env, model.EnvFacts) or "GLOO_SOCKET_IFNAME" in node.env.variables
        for node in facts.values()
    ):
        return ()  # the user has chosen
    nets = [node.net for node in facts.values() if isinstance(node.net, model.NetFacts)]
    if len(nets) < len(spec.nproc):
        return ()
    first = {n: ranks[0] for n, ranks in spec.ranks_of.items()}
    shared = shared_networks({n: node.net for n, node in facts.items() if isinstance(node.net, model.NetFacts)})
    found = tuple(
        Rail(members=tuple(first[n] for n in sorted(at)), name=name, addresses={first[n]: at[n] for n in at})
        for name, at in shared.items()
    )
    return found if len(found) > 1 else ()


def shared_networks(nets: Mapping[int, model.NetFacts]) -> dict[str, dict[int, str]]:
    """IPv4 networks in which every node has an address of its own: name -> node -> address.

    The name is that of the interface, where it is the same on all nodes.  What has the same address on several nodes
    (docker0) is none.
    """
    found: dict[str, dict[int, tuple[str, str]]] = {}
    for node, net in nets.items():
        for interface in net.interfaces:
            for text in interface.addresses if interface.is_up and not interface.is_loopback else ():
                address = ipaddress.ip_interface(text)
                if address.version == 4 and not address.is_link_local:
                    found.setdefault(str(address.network), {}).setdefault(node, (interface.name, str(address.ip)))
    named: dict[str, dict[int, str]] = {}
    for network, at in found.items():
        names, addresses = {name for name, _ in at.values()}, {node: address for node, (_, address) in at.items()}
        if len(at) == len(nets) and len({*addresses.values()}) == len(at):
            name = names.pop() if len(names) == 1 else network
            named[name if name not in named else network] = addresses
    return named


def _addresses(net: model.NetFacts) -> tuple[str, ...]:
    return tuple(a for i in net.interfaces if not i.is_loopback for a in i.bare_addresses)


def _sweep_budget_s(request: CheckRequest, *, is_faulty: bool) -> float:
    """How long the sweep may take: longer where sizes or repetitions are asked for, or a longer time."""
    asked = (request.min_bytes, request.max_bytes, request.num_iterations, request.num_warmup)
    if any(a is not None for a in asked):
        usual_s = EXPLICIT_SWEEP_S
    else:
        usual_s = FAULTY_SWEEP_S if is_faulty else QUICK_SWEEP_S if request.quick else SWEEP_S
    return max(usual_s, request.stage_deadline_s or 0.0)


def _stages(asked: tuple[str, ...], backend: str) -> tuple[str, ...] | None:
    """The backend's own names of the stages that were asked for ("small" is nccl_small, gloo_small or jax_psum)."""
    if not asked:
        return None
    own = [stage for name in asked for stage in _own_stages(name, backend)]
    return tuple(own) or STAGES[backend][:1]


def _own_stages(name: str, backend: str) -> tuple[str, ...]:
    candidates = {name, f"{backend}_{name}", *({"jax_psum"} if name in {"small", "sweep"} else ())}
    return tuple(stage for stage in STAGES[backend] if stage in candidates)


def stages_it_has_not(request: CheckRequest, backend: str) -> dict[str, model.Reason]:
    """Stages of the collectives that were asked for and that this backend does not have -> why."""
    return {
        name: reason(model.UncheckedKind.NO_SUCH_STAGE, backend=backend, stages=", ".join(STAGES[backend]))
        for name in request.collective_stages
        if not _own_stages(name, backend)
    }


async def run_collectives(hub: HubSide, request: CheckRequest, spec: RunSpec, narrator: Narrator) -> model.Collectives:
    """All runs: the job as asked for comes first in the answer, also after growing up to it."""
    if request.grow and spec.world_size > 1:
        grown = await variants.grow(hub, spec, narrator)
        runs: list[model.CollectiveRun] = [grown[-1], *grown[:-1]]
    else:
        runs = [await conduct(hub, spec, narrator)]
    if request.isolate and runs[0].bad is not None:
        runs += await variants.isolate(hub, spec, runs[0], narrator)
    elif request.isolate and request.bench is not None:
        runs += await variants.measure_without_each(hub, spec, narrator)
    bench = request.bench or BenchRequest()
    if bench.asks_nccl and runs[0].bad is None:
        asked = await variants.ask_nccl(hub, spec, narrator)
        runs[0] = variants.with_choices(runs[0], asked)
        runs.append(replace(asked, points=(), sizes_left=(), left_s=None))  # single, logged operations are no curve
    return model.Collectives(
        runs=tuple(runs),
        baseline=bench.baseline,
        baseline_source=bench.baseline_source,
        overlays=bench.overlays,
        prediction=_prediction(runs[0], bench),
    )


def _prediction(run: model.CollectiveRun, bench: BenchRequest) -> model.Prediction | None:
    """What was asked for, unless the run broke off before its curves."""
    if bench.question is None or run.bad is not None:
        return None
    return predict(run.points, len(run.ranks), bench.question)
