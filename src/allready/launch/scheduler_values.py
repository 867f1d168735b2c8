"""What a scheduler's variables say about this node; the tables are in `allready.launch.schedulers`."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from allready.errors import UsageError
from allready.launch.host_lists import (
    expand_nodelist,
    hosts_in,
    place_of,
    read_host_file,
    split_endpoint,
    tasks_on_node,
)
from allready.launch.identity import Identity, default_address, own_identity
from allready.launch.schedulers import SCHEDULERS, Scheduler, SchedulerVariable

FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""Slurm's steps from here on are no srun: batch script, interactive shell, prolog."""
MAX_PARTS = 1024
"""Of a job; Slurm takes 128."""
FIRST_PORT, NUM_PORTS = 20_000, 10_000
"""Of ports that follow from a job's id."""
PORTS_BETWEEN_STEPS = 1009  # far from those of the next jobs


class Machine(Struct, frozen=True, kw_only=True):
    """What a layout may ask of this machine, when the variables alone do not say it."""

    identify: Callable[[], Identity] = own_identity
    address: Callable[[], str] = default_address
    read: Callable[[str], str] = read_host_file


THIS_MACHINE = Machine()


def detect(environ: Mapping[str, str]) -> Scheduler | None:
    """The scheduler that started this process, or None."""
    for scheduler in SCHEDULERS:
        present = all(environ.get(name, "") != "" for name in scheduler.detect)
        if present and not any(environ.get(name, "") != "" for name in scheduler.absent):
            return scheduler
    return None


class FoundValues(Struct, kw_only=True):
    """Field -> value, and field -> the variable or flag that decided it; `scheduler` None: none was detected.

    `num_tasks`: how many processes the launcher started on this node; None where it starts one per node, or it is not
    known.
    """

    scheduler: Scheduler | None
    values: dict[str, Any]
    sources: dict[str, str]
    num_tasks: int | None = None


def read_scheduler(flags: Mapping[str, Any], environ: Mapping[str, str], machine: Machine) -> FoundValues:
    """Flags and variables together; `flags`: field -> value, without those that were not given.

    Raises:
        UsageError: a variable cannot be read, or the command runs on one node of a job of several.
    """
    scheduler = detect(environ)
    values, sources = _read(scheduler, environ)
    is_script = _is_on_first_node_only(scheduler, environ)
    if is_script:
        values.pop("nproc_per_node", None)  # of tasks that are not started
    tasks = values.get("nproc_per_node")
    found = FoundValues(
        scheduler=scheduler, values=values, sources=sources, num_tasks=tasks if isinstance(tasks, int) else None
    )
    for name, value in flags.items():
        values[name] = value
        sources[name] = "--" + {"num_nodes": "nnodes"}.get(name, name).replace("_", "-")
    if scheduler is not None:
        if is_script:
            _demand_step(scheduler, sources, environ)
        _shift_port(scheduler, values, sources)
        _apart_from_other_steps(scheduler, values, sources, environ)
        _derive_from_hosts(scheduler, found, environ, machine)
        _main_node_first(scheduler, found, environ, machine)
    return found


def _is_on_first_node_only(scheduler: Scheduler | None, environ: Mapping[str, str]) -> bool:
    """Whether this is a job's batch script, or the shell of its allocation, and no task that was started for it."""
    if scheduler is None or not scheduler.step or _whole(environ.get(scheduler.fields["node_rank"][0].name)) > 0:
        return False
    step = next((_whole(environ[name]) for name in scheduler.step if environ.get(name)), -1)
    return not 0 <= step < FIRST_SPECIAL_STEP


def _demand_step(scheduler: Scheduler, sources: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """What runs on the first node only would wait for the others in vain, unless the user has a plan of their own."""
    if any(sources.get(name, "").startswith("--") for name in ("num_nodes", "node_rank")):
        return
    num_parts = min(_whole(environ.get(scheduler.parts)), MAX_PARTS)
    of_parts = (_whole(environ.get(scheduler.part_nodes.format(part=part))) for part in range(num_parts))
    of_all = (_whole(environ.get(v.name)) for v in scheduler.fields["num_nodes"])
    num_nodes = max(*of_all, sum(max(1, number) for number in of_parts))
    if num_nodes > 1:
        raise UsageError(
            "this is the script or shell of a {scheduler} job of {num_nodes} nodes, and runs on one of them; put "
            "{start} before the command, or add --nnodes 1 for this node alone",
            scheduler=scheduler.name,
            num_nodes=num_nodes,
            start=(scheduler.start_parts if num_parts > 1 else scheduler.start).format(
                num_nodes=num_nodes, last=num_parts - 1
            ),
        )


def _whole(text: str | None) -> int:
    """The number, -1 where there is none."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 12 else -1


def _shift_port(scheduler: Scheduler, values: dict[str, Any], sources: dict[str, str]) -> None:
    if scheduler.port_shift and sources.get("master_port") == "MASTER_PORT":
        values["master_port"] += scheduler.port_shift
        sources["master_port"] = f"MASTER_PORT + {scheduler.port_shift} ({scheduler.name} itself holds MASTER_PORT)"


def _apart_from_other_steps(
    scheduler: Scheduler, values: dict[str, Any], sources: dict[str, str], environ: Mapping[str, str]
) -> None:
    """Steps of one allocation that run at once must neither meet nor want the same port.

    A step that is only a part of the job, by the number of nodes that the user gave, meets the others of the job.
    """
    if not scheduler.step_nodes or sources.get("num_nodes") != scheduler.step_nodes:
        return
    step = _whole(environ.get(scheduler.step[0]))
    if not 0 < step < FIRST_SPECIAL_STEP:
        return
    for name, of in (("job_id", f"{values.get('job_id')}.{step}"), ("master_port", None)):
        (variable,) = (v for v in scheduler.fields[name] if v.kind in {"text", "port_of_id"})
        if sources.get(name) != variable.name:
            continue
        values[name] = of or FIRST_PORT + (values[name] - FIRST_PORT + PORTS_BETWEEN_STEPS * step) % NUM_PORTS
        sources[name] = f"{variable.name} and {scheduler.step[0]}"


def _derive_from_hosts(scheduler: Scheduler, found: FoundValues, environ: Mapping[str, str], machine: Machine) -> None:
    """Number of nodes, place of this one and node 0 from the scheduler's list of hosts, where they are not known."""
    values, sources = found.values, found.sources
    if values.get("num_nodes") == 1 or {"num_nodes", "node_rank", "master_addr"} <= values.keys():
        return
    variable = next((v for v in scheduler.hosts if environ.get(v.name, "").strip()), None)
    if variable is None:
        return
    try:
        hosts = hosts_in(variable.kind, environ[variable.name].strip(), machine.read)
    except OSError as error:
        raise UsageError(
            "{name}={text}: {reason}; add --nnodes, --node-rank and --master-addr",
            name=variable.name,
            text=environ[variable.name],
            reason=error.strerror or error,
        ) from error
    place: int | None = None
    if (own := environ.get(scheduler.own_host, "")) in hosts:
        place = hosts.index(own)
    elif "node_rank" not in values and len(hosts) > 1:
        place = place_of(machine.identify(), hosts)
    derived = {"num_nodes": len(hosts), "node_rank": place, "master_addr": hosts[0]} if hosts else {}
    for name, value in derived.items():
        if value is not None and name not in values:
            values[name] = value
            sources[name] = variable.name


def _main_node_first(scheduler: Scheduler, found: FoundValues, environ: Mapping[str, str], machine: Machine) -> None:
    """Where another node than 0 coordinates, it becomes node 0, and those before it move up; it knows its address."""
    values, sources = found.values, found.sources
    if not scheduler.main_node or sources.get("node_rank", "--").startswith("--"):
        return
    main, own = max(0, _whole(environ.get(scheduler.main_node))), values["node_rank"]
    if own == main and values.get("num_nodes", 1) > 1 and "master_addr" not in values:
        values["master_addr"] = machine.address()
        sources["master_addr"] = scheduler.main_node
    values["node_rank"] = 0 if own == main else own + 1 if own < main else own


def _read(scheduler: Scheduler | None, environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if scheduler is None:
        return values, sources
    for name, variables in scheduler.fields.items():
        for variable in variables:
            text = environ.get(variable.name, "").strip()
            value = _convert(variable, text, environ) if text else None
            if value is not None:
                values[name] = value
                sources[name] = variable.name
                break
    return values, sources


def _convert(variable: SchedulerVariable, text: str, environ: Mapping[str, str]) -> Any:
    if variable.kind == "text":
        return text
    if variable.kind == "before_hash":
        return text.partition("#")[0]
    if variable.kind == "first_word":
        return hosts_in("words", text)[0]
    if variable.kind in {"endpoint_host", "endpoint_port"}:
        return split_endpoint(text, variable.name)[variable.kind == "endpoint_port"]
    if variable.kind == "nodelist_first":
        return expand_nodelist(text)[0]
    if variable.kind == "tasks_here":
        return tasks_on_node(text, int(environ.get("SLURM_NODEID", "0") or 0))
    if variable.kind == "port_of_id":
        digits = re.sub(r"\D", "", text) or "0"
        return FIRST_PORT + int(digits) % NUM_PORTS
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
        number = int(text)
    except ValueError:
        raise UsageError("{name}={text!r} is not a number", name=variable.name, text=text) from None
    return None if variable.kind == "number" and number == 0 else number


def derive_nodes(found: FoundValues) -> None:
    """Work out node count and node rank from ranks, where only those are known (MPI, plain variables).

    What counts is how many processes the launcher started on this node; how many ranks it is to have is another matter.
    """
    values, sources, scheduler, tasks = found.values, found.sources, found.scheduler, found.num_tasks
    rank, world, local = (values.get(k) for k in ("rank", "world_size", "local_rank"))
    here = tasks if tasks is not None else values.get("nproc_per_node") if local is not None else None
    if not (isinstance(rank, int) and isinstance(world, int) and isinstance(here, int)) or here < 1:
        if scheduler is not None and "num_nodes" not in values and "num_nodes" in scheduler.help:
            raise UsageError(scheduler.help["num_nodes"])
        return
    uniform = world % here == 0 and (local is None or rank % here == local)
    for name, value in (("num_nodes", world // here), ("node_rank", rank // here)):
        if name in values:
            continue
        if not uniform:
            raise UsageError(
                "rank {rank} of {world} with {nproc} here as local rank {local}: the ranks are not placed "
                "node by node in equal numbers, so the {what} cannot be worked out; add --nnodes and "
                "--node-rank",
                rank=rank,
                world=world,
                nproc=here,
                local=local,
                what=name.replace("_", " "),
            )
        values[name] = value
        sources[name] = f"{sources['rank']} and {sources['nproc_per_node']}"
