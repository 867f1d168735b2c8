"""From flags and environment to `LaunchFacts`: who am I, how many are we, where is node 0."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from allready.errors import UsageError
from allready.launch.schedulers import SCHEDULERS, Scheduler, Variable
from allready.model import LaunchFacts

DEFAULT_MASTER_PORT = 29500  # torchrun's
MAX_NODES, MAX_RANKS_PER_NODE = 65_536, 1024  # as the store accepts them (allready.messaging.wire)
FROM_FALLBACK = "configuration file"
FIELDS = ("num_nodes", "node_rank", "nproc_per_node", "master_addr", "master_port", "job_id")


class Layout(Struct, frozen=True, kw_only=True):
    """What this process is to do.  `acts` is False for all but one process per node (srun, mpirun, torchrun)."""

    launch: LaunchFacts
    acts: bool = True
    local_rank: int = 0


def detect(environ: Mapping[str, str]) -> Scheduler | None:
    """The scheduler that started this process, or None."""
    for scheduler in SCHEDULERS:
        present = all(environ.get(name, "") != "" for name in scheduler.detect)
        if present and not any(environ.get(name, "") != "" for name in scheduler.absent):
            return scheduler
    return None


def lay_out(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    count_gpus: Callable[[], int],
    backend: str | None = None,
    framework: str = "torch",
    fallback: Mapping[str, Any] | None = None,
    by_agreement: bool = False,
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
    scheduler = detect(environ)
    found, sources = _read(scheduler, environ)
    values: dict[str, Any] = dict(found)
    for name, value in flags.items():
        if value is not None and name in FIELDS:
            values[name] = value
            sources[name] = "--" + {"num_nodes": "nnodes"}.get(name, name).replace("_", "-")
    if scheduler is not None and scheduler.port_shift and sources.get("master_port") == "MASTER_PORT":
        values["master_port"] += scheduler.port_shift
        sources["master_port"] = f"MASTER_PORT + {scheduler.port_shift} ({scheduler.name} itself holds MASTER_PORT)"
    spare = {name: value for name, value in (fallback or {}).items() if value is not None and name in FIELDS}
    if not {"rank", "world_size"} <= values.keys():
        _fill(values, sources, spare)  # there is nothing to derive from
    _derive_nodes(values, sources, scheduler)
    _fill(values, sources, spare)
    num_nodes = values.setdefault("num_nodes", 1)
    if num_nodes > 1 and "node_rank" not in values and not by_agreement:
        raise UsageError(
            "the rank of this node is missing (of {num_nodes} nodes); add --node-rank 0 on node 0, "
            "1 to {last} elsewhere",
            num_nodes=num_nodes,
            last=num_nodes - 1,
        )
    node_rank = values.setdefault("node_rank", 0)
    if num_nodes > 1 and not values.get("master_addr") and not by_agreement:
        hint = (scheduler.help if scheduler else {}).get("master_addr", "the name or address of node 0")
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
    return Layout(launch=launch, acts=not per_rank or local_rank == 0, local_rank=local_rank)


def _fill(values: dict[str, Any], sources: dict[str, str], spare: Mapping[str, Any]) -> None:
    for name, value in spare.items():
        if name not in values:
            values[name] = value
            sources[name] = FROM_FALLBACK


def _read(scheduler: Scheduler | None, environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if scheduler is None:
        return values, sources
    for name, variables in scheduler.fields.items():
        for variable in variables:
            text = environ.get(variable.name, "").strip()
            if text:
                values[name] = _convert(variable, text, environ)
                sources[name] = variable.name
                break
    return values, sources


def _convert(variable: Variable, text: str, environ: Mapping[str, str]) -> Any:
    if variable.kind == "text":
        return text
    if variable.kind == "nodelist_first":
        return first_of_nodelist(text)
    if variable.kind == "tasks_here":
        return tasks_on_node(text, int(environ.get("SLURM_NODEID", "0") or 0))
    if variable.kind == "port_of_id":
        digits = re.sub(r"\D", "", text) or "0"
        return 20000 + int(digits) % 10000
    head, _, tail = text.partition(":")
    if variable.name == "PET_NNODES" and tail:
        # torchrun's elastic form MIN:MAX; a roll call needs one number.
        if head != tail:
            raise UsageError(
                "PET_NNODES={text} is a range; give the number of nodes to expect: --nnodes {tail}",
                text=text,
                tail=tail,
            )
        text = head
    try:
        return int(text)
    except ValueError:
        raise UsageError("{name}={text!r} is not a number", name=variable.name, text=text) from None


def _derive_nodes(values: dict[str, Any], sources: dict[str, str], scheduler: Scheduler | None) -> None:
    """Work out node count and node rank from ranks, where only those are known (MPI, plain variables)."""
    rank, world, local, nproc = (values.get(k) for k in ("rank", "world_size", "local_rank", "nproc_per_node"))
    if not (isinstance(rank, int) and isinstance(world, int) and isinstance(nproc, int)) or nproc < 1:
        if scheduler is not None and "num_nodes" not in values and "num_nodes" in scheduler.help:
            raise UsageError(scheduler.help["num_nodes"])
        return
    uniform = world % nproc == 0 and (local is None or rank % nproc == local)
    for name, value in (("num_nodes", world // nproc), ("node_rank", rank // nproc)):
        if name in values:
            continue
        if not uniform:
            raise UsageError(
                "rank {rank} of {world} with {nproc} here as local rank {local}: the ranks are not placed "
                "node by node in equal numbers, so the {what} cannot be worked out; add --nnodes and "
                "--node-rank",
                rank=rank,
                world=world,
                nproc=nproc,
                local=local,
                what=name.replace("_", " "),
            )
        values[name] = value
        sources[name] = f"{sources['rank']} and {sources['nproc_per_node']}"


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
        raise UsageError("--nnodes {num_nodes}: 1 to {limit}", num_nodes=launch.num_nodes, limit=MAX_NODES)
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
            "--nproc-per-node {nproc_per_node}: 1 to {limit}",
            nproc_per_node=launch.nproc_per_node,
            limit=MAX_RANKS_PER_NODE,
        )
    if not 1 <= launch.master_port <= 65535:
        raise UsageError("--master-port {master_port}: 1 to 65535", master_port=launch.master_port)


def first_of_nodelist(text: str) -> str:
    """First host of a Slurm node list: `gpu[003-007,11],login1` gives gpu003."""
    match = re.match(r"^([^\[\],\s]*)(?:\[([^\]]+)\])?([^\[\],\s]*)(?=,|\[|$)", text)
    if not match or not match.group(0):
        raise UsageError("not a Slurm node list: {text!r}", text=text)
    prefix, inside, suffix = match.groups()
    first = re.split(r"[,-]", inside)[0] if inside else ""
    rest = text[match.end() :]
    if rest.startswith("["):  # several dimensions: rack[1-2]node[3-4]
        return prefix + first + first_of_nodelist(suffix + rest)
    return prefix + first + suffix


def tasks_on_node(text: str, node_rank: int) -> int:
    """Slurm's tasks per node, `2(x3),1`, at place `node_rank`."""
    place = 0
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if not match:
            raise UsageError("not Slurm's tasks per node: {text!r}", text=text)
        count, repeat = int(match.group(1)), int(match.group(2) or 1)
        place += repeat
        if node_rank < place:
            return count
    raise UsageError(
        "Slurm's tasks per node {text!r} name {place} nodes, this is node {node_rank}",
        text=text,
        place=place,
        node_rank=node_rank,
    )
