"""How rules write values (ranks, stages), the same in every language, and what a job asks for."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from allready import model
from allready.judging.stated import Text, evidence_of
from allready.model.fill import Several
from allready.units import size

Key = TypeVar("Key")
Member = TypeVar("Member")


def listed(items: Sequence[str], most: int, separator: str = ", ") -> str:
    """The items in one line; beyond `most` only how many are left."""
    more = f"{separator}… +{len(items) - most}" if len(items) > most else ""
    return separator.join(items[:most]) + more


def shared(values: Iterable[Member]) -> Member | None:
    """The one value of all, as a sentence that names several may have it; None where they differ or there are none."""
    known = list(values)
    return known[0] if known and all(value == known[0] for value in known) else None


MAX_EVIDENCE = 16


Seen = TypeVar("Seen", bound=Text)


def seen(
    source: str | model.Phrase, texts: Mapping[int, Seen], *, most: int = MAX_EVIDENCE
) -> tuple[model.Evidence, ...]:
    """What `source` shows on each of the first nodes."""
    return tuple(evidence_of(source, text, node_rank=node) for node, text in list(texts.items())[:most])


def grouped(members: Iterable[tuple[Key, Member]]) -> dict[Key, tuple[Member, ...]]:
    """Members (node ranks, ranks, events) by what they have in common, in the order in which they come."""
    found: dict[Key, list[Member]] = {}
    for key, member in members:
        found.setdefault(key, []).append(member)
    return {key: tuple(group) for key, group in found.items()}


def rank_label(world: model.World, rank: int, pid: int | None = None) -> str:
    """`3 (gpu01, pid 1234)`, with what is known."""
    node = world.node_of(rank)
    name = next((n.name for n in world.nodes if n.node_rank == node and n.name), None)
    about = ", ".join(part for part in (name, f"pid {pid}" if pid is not None else None) if part)
    return f"{rank} ({about})" if about else str(rank)


def rank_labels(world: model.World, states: Iterable[model.RankState], *, most: int = 8) -> str:
    """Labels of the ranks in `states`, joined by commas; beyond `most` only how many are left."""
    labels = [rank_label(world, s.rank, s.pid) for s in states]
    return Several(listed(labels, most)) if len(labels) > 1 else listed(labels, most)


def stage_label(stage: model.StageResult) -> str:
    """`nccl_small`, or `sweep (1 MiB, #3)` where the size and the iteration are known."""
    at = [size(stage.size_bytes)] if stage.size_bytes is not None else []
    at += [f"#{stage.iteration}"] if stage.iteration is not None else []
    return f"{stage.name} ({', '.join(at)})" if at else stage.name


def on_nodes(world: model.World, node_ranks: Sequence[int]) -> str | None:
    """Labels of nodes; None when none is known."""
    return world.labels(sorted(set(node_ranks))) or None


NodeCommand = tuple[str, tuple[int, ...]]
"""A command, and the nodes on which it is to be run."""

MAX_COMMANDS = 4


PROCESS_STATE = model.RemedyStep(shared="process_state")
KILLED_BY = model.RemedyStep(shared="killed_by")
STACK = model.RemedyStep(shared="stack")


def processes_of(fleet: model.Fleet, ranks: Sequence[int]) -> tuple[dict[str, str | None], ...]:
    """Values of a remedy's step that is there for each of these ranks, as far as known (`model.PROCESSES`)."""
    living = fleet.live.ranks() if fleet.live is not None else {}
    run = fleet.run_evidence
    left = {p.rank: p for p in run.processes} if run is not None else {}
    stacks = {s.rank: s.pid for s in run.stacks if s.role == "rank"} if run is not None else {}
    checked = _pids_of_a_check(fleet)
    names = {rank: node.name for node in fleet.world.nodes for rank in node.ranks}
    found = []
    for rank in ranks[:MAX_COMMANDS]:
        pid = (living[rank].pid if rank in living else None) or (left[rank].pid if rank in left else None)
        pid = pid or stacks.get(rank) or checked.get(rank)
        host = names.get(rank) or (left[rank].host if rank in left else None)
        found.append(process_row(rank, pid, host))
    return tuple(found) or (process_row(None, None, None),)


def process_row(rank: int | None, pid: int | None, host: str | None) -> dict[str, str | None]:
    """One of `processes_of`; None: not known."""
    find = "" if pid else ALL_PIDS if rank is None else PIDS_OF.format(rank=rank)
    return {"rank": None if rank is None else str(rank), "pid": str(pid) if pid else None, "on": host, "find": find}


def _pids_of_a_check(fleet: model.Fleet) -> dict[int, int]:
    runs = fleet.collectives.runs if fleet.collectives is not None else ()
    states = (state for run in runs for stage in run.stages for state in stage.ranks)
    return {state.rank: state.pid for state in states if state.pid is not None}


PIDS_OF = "grep -lzE '^(RANK|SLURM_PROCID|OMPI_COMM_WORLD_RANK)={rank}$' /proc/[0-9]*/environ 2>/dev/null"
ALL_PIDS = "pgrep -af python"


def hosts_of(fleet: model.Fleet, culprits: model.Culprits) -> tuple[dict[str, str | None], ...]:
    """Value `on` of a remedy's step that is there for each host of the accused (`model.HOSTS`)."""
    left = {p.rank: p.host for p in fleet.run_evidence.processes} if fleet.run_evidence is not None else {}
    of_node = {node.node_rank: node.name or f"node {node.node_rank}" for node in fleet.world.nodes}
    of_rank = {rank: of_node[node.node_rank] for node in fleet.world.nodes for rank in node.ranks}
    named: list[str | None] = [of_node.get(node, f"node {node}") for node in culprits.nodes]
    named += [host for rank in culprits.ranks if (host := of_rank.get(rank) or left.get(rank))]
    return tuple({"on": host} for host in list(dict.fromkeys(named))[:MAX_COMMANDS] or [None])


def commands(world: model.World, of_nodes: Iterable[NodeCommand]) -> tuple[dict[str, str | None], ...]:
    """Values `command` and `on` of a remedy's step that is there for each group of nodes with another command."""
    return tuple({"command": text, "on": on_nodes(world, nodes)} for text, nodes in list(of_nodes)[:MAX_COMMANDS])


def wants_nccl(node: int, launch: model.PerNode[model.LaunchFacts], gpu: model.PerNode[model.GpuFacts] | None) -> bool:
    """Whether the job will use NCCL: asked for on this node, or not said and every node has GPUs that it may use."""
    if launch[node].backend in {"nccl", "gloo"}:
        return launch[node].backend == "nccl"
    return gpu is not None and len(gpu) > 0 and all(facts.visible for facts in gpu.values())


def nccl_nodes(
    nodes: Iterable[int], launch: model.PerNode[model.LaunchFacts], gpu: model.PerNode[model.GpuFacts] | None
) -> frozenset[int]:
    """The nodes among `nodes` that will use NCCL; a node of whose job nothing is known is assumed to use it."""
    one_of = {job.backend: node for node, job in launch.items()}
    wants = {backend: wants_nccl(node, launch, gpu) for backend, node in one_of.items()}
    return frozenset(n for n in nodes if n not in launch or wants[launch[n].backend])


def nccl_worked(collectives: model.Collectives | None) -> bool:
    """Whether NCCL moved data between all ranks of the job in this check."""
    if collectives is None or not collectives.runs or collectives.runs[0].backend != "nccl":
        return False
    run = collectives.runs[0]
    return run.bad is None and any(s.name in {"nccl_small", "sweep"} and s.outcome == "ok" for s in run.stages)


def used_gpus(launch: model.LaunchFacts, gpu: model.GpuFacts) -> tuple[int, ...]:
    """NVML indices of the GPUs that this node's ranks will take, by local rank; tokens we cannot place are left out."""
    if launch.devices:
        places = [gpu_index(token, gpu) for token in launch.devices]
        return tuple(i for i in places[: launch.nproc_per_node] if i is not None)
    return gpu.visible[: launch.nproc_per_node]


def gpu_index(token: str, gpu: model.GpuFacts) -> int | None:
    """NVML index of a GPU named as CUDA_VISIBLE_DEVICES names it: a number, or a UUID that may be cut short."""
    token = token.strip()
    if number := re.fullmatch(r"\d{1,4}", token):
        return int(number[0]) if any(g.index == int(number[0]) for g in gpu.gpus) else None
    found = [g.index for g in gpu.gpus if token.startswith("GPU-") and g.uuid.lower().startswith(token.lower())]
    return found[0] if len(found) == 1 else None
