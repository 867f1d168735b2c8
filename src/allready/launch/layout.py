"""From flags and environment to `LaunchFacts`: who am I, how many are we, where is node 0."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from allready.errors import UsageError
from allready.launch.request import Note
from allready.launch.scheduler_values import THIS_MACHINE, Machine, derive_nodes, read_scheduler
from allready.launch.several_nodes import several_nodes
from allready.model import LaunchFacts
from allready.text.usage import usage_text

DEFAULT_MASTER_PORT = 29500  # torchrun's
MAX_NODES, MAX_RANKS_PER_NODE = 65_536, 1024  # as the store accepts them (allready.messaging.wire)
FROM_FALLBACK = "configuration file"
FIELDS = ("num_nodes", "node_rank", "nproc_per_node", "master_addr", "master_port", "job_id")


class Layout(Struct, frozen=True, kw_only=True):
    """What this process is to do.  `acts` is False for all but one process per node (srun, mpirun, torchrun).

    `num_tasks`: how many processes the launcher started on this node, where it starts them per rank; else 1.
    `notes`: what is only a doubt.
    """

    launch: LaunchFacts
    acts: bool = True
    local_rank: int = 0
    num_tasks: int = 1
    notes: tuple[Note, ...] = ()


def lay_out(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    count_gpus: Callable[[], int],
    backend: str | None = None,
    framework: str = "torch",
    fallback: Mapping[str, Any] | None = None,
    by_agreement: bool = False,
    machine: Machine = THIS_MACHINE,
) -> Layout:
    """Decide by flag, then by the scheduler's variables, then by `fallback`, then by default.

    Args:
        flags: field -> value, None where the user gave none; `nproc_per_node` may be "gpu", "cpu" or "auto",
            `devices` a tuple of device names.
        count_gpus: called only when the number of GPUs matters.
        backend: nccl, gloo or None (to be chosen by what is there).
        fallback: field -> value where neither flag nor scheduler sets it (a configuration file).
        by_agreement: the nodes can agree on node ranks and meet elsewhere: neither a missing node rank nor a missing
            master is an error.  `sources` then lacks `node_rank` or `master_addr`.

    Raises:
        UsageError: something needed is missing, malformed, out of range or contradictory.
    """
    asked = {name: value for name, value in flags.items() if value is not None and name in FIELDS}
    found = read_scheduler(asked, environ, machine)
    scheduler, values, sources = found.scheduler, found.values, found.sources
    spare = {name: value for name, value in (fallback or {}).items() if value is not None and name in FIELDS}
    if not {"rank", "world_size"} <= values.keys():
        _fill(values, sources, spare)  # there is nothing to derive from
    derive_nodes(found)
    _fill(values, sources, spare)
    notes: tuple[Note, ...] = ()
    if "num_nodes" not in values:
        notes = _refuse_several(environ, machine)
        _refuse_master_elsewhere(values.get("master_addr"), sources, machine)
    num_nodes = values.setdefault("num_nodes", 1)
    if num_nodes == 1 and sources.get("num_nodes") == "--nnodes" and sources.get("node_rank") != "--node-rank":
        values["node_rank"] = 0  # this node alone, whatever its place among others is
    if num_nodes > 1 and "node_rank" not in values and not by_agreement:
        if num_nodes == 2:
            raise UsageError(
                "the rank of this node is missing (of 2 nodes); add --node-rank 0 on node 0, --node-rank 1 on the other"
            )
        raise UsageError(
            "the rank of this node is missing (of {num_nodes} nodes); add --node-rank 0 on node 0, "
            "1 to {last} elsewhere",
            num_nodes=num_nodes,
            last=num_nodes - 1,
        )
    node_rank = values.setdefault("node_rank", 0)
    if num_nodes > 1 and not values.get("master_addr") and not by_agreement:
        hint = (scheduler.help if scheduler else {}).get("master_addr") or usage_text("the name or address of node 0")
        raise UsageError("the address of node 0 is missing; add --master-addr ({hint})", hint=hint)
    values.setdefault("master_addr", "127.0.0.1")
    values.setdefault("master_port", DEFAULT_MASTER_PORT)
    devices = tuple(flags.get("devices") or ())
    nproc = _nproc(values.get("nproc_per_node"), devices, count_gpus, num_nodes)
    launch = LaunchFacts(
        num_nodes=num_nodes,
        node_rank=node_rank,
        nproc_per_node=nproc,
        master_addr=values["master_addr"],
        master_port=values["master_port"],
        job_id=str(values.get("job_id") or "none"),
        scheduler=scheduler.name if scheduler else None,
        devices=devices,
        backend=backend,
        framework=framework,
        sources=sources,
    )
    _check_ranges(launch)
    local_rank = values.get("local_rank", 0)
    per_rank = scheduler is not None and scheduler.per_rank
    return Layout(
        launch=launch,
        acts=not per_rank or local_rank == 0,
        local_rank=local_rank,
        num_tasks=found.num_tasks or 1 if per_rank and "local_rank" in values else 1,
        notes=notes,
    )


def _refuse_several(environ: Mapping[str, str], machine: Machine) -> tuple[Note, ...]:
    """Nothing that is known gives a number of nodes: then one node is only right where nothing speaks against it.

    A mere doubt is a note, since an ordinary variable must not stop the command.
    """
    found = several_nodes(environ, machine.read)
    if found is None:
        return ()
    count = str(found.count or "N")
    if found.is_doubtful:
        return (Note(key="launch.taken_for_one", values={"name": found.name, "value": found.value, "count": count}),)
    raise UsageError(
        "{name}={value} is set, so this may be one of several nodes, and the variables do not say which; add "
        "--nnodes {count} --node-rank R --master-addr HOST, or --nnodes 1 for this node alone",
        name=found.name,
        value=found.value,
        count=count,
    )


def _refuse_master_elsewhere(master: str | None, sources: Mapping[str, str], machine: Machine) -> None:
    """One node is its own node 0."""
    if not master or master.lower() == "localhost" or machine.identify().is_at(master):
        return
    raise UsageError(
        "{name} {value} is another machine, and nothing says how many nodes there are; add --nnodes N "
        "--node-rank R, or --nnodes 1 for this node alone",
        name=sources["master_addr"],
        value=master,
    )


def _fill(values: dict[str, Any], sources: dict[str, str], spare: Mapping[str, Any]) -> None:
    for name, value in spare.items():
        if name not in values:
            values[name] = value
            sources[name] = FROM_FALLBACK


def _nproc(asked: Any, devices: tuple[str, ...], count_gpus: Callable[[], int], num_nodes: int) -> int:
    if isinstance(asked, str) and asked.isdecimal():
        asked = int(asked)
    if isinstance(asked, int):
        if devices and len(devices) != asked:
            raise UsageError(
                "--devices names {count} devices, --nproc-per-node is {asked}", count=len(devices), asked=asked
            )
        return asked
    if devices:
        return len(devices)
    if asked not in {None, "auto", "gpu", "cpu"}:
        raise UsageError("--nproc-per-node {asked!r}: give a number, or gpu, cpu or auto", asked=asked)
    gpus = 0 if asked == "cpu" else count_gpus()
    if gpus == 0 and asked == "gpu":
        raise UsageError("--nproc-per-node gpu: no GPU is visible on this machine")
    # Without GPUs one machine still needs two ranks for a collective; several machines do with one each.
    return gpus or (2 if num_nodes == 1 else 1)


def _check_ranges(launch: LaunchFacts) -> None:
    if not 1 <= launch.num_nodes <= MAX_NODES:
        raise UsageError(
            "--nnodes {num_nodes} is not between 1 and {limit}", num_nodes=launch.num_nodes, limit=MAX_NODES
        )
    if not 0 <= launch.node_rank < launch.num_nodes:
        origin = launch.sources.get("node_rank", "--node-rank")
        raise UsageError(
            "node rank {node_rank} (from {origin}) does not exist: with {num_nodes} nodes it is 0 to {last}",
            node_rank=launch.node_rank,
            origin=origin,
            num_nodes=launch.num_nodes,
            last=launch.num_nodes - 1,
        )
    if not 1 <= launch.nproc_per_node <= MAX_RANKS_PER_NODE:
        raise UsageError(
            "--nproc-per-node {nproc_per_node} is not between 1 and {limit}",
            nproc_per_node=launch.nproc_per_node,
            limit=MAX_RANKS_PER_NODE,
        )
    if not 1 <= launch.master_port <= 65535:
        raise UsageError("--master-port {master_port} is not between 1 and 65535", master_port=launch.master_port)
