"""Whether the [node] sections of a configuration file fit together, as far as the file alone shows."""

from collections.abc import Sequence

from allready.errors import UsageError
from allready.launch.config_model import ConfigFile, Section
from allready.launch.ranks import Entry, RanksError, assign


def check_nodes(file: ConfigFile) -> None:
    """Raises UsageError: duplicates, gaps, overlaps, or given for some nodes only; both parties are named."""
    nodes = file.nodes
    if not nodes:
        return
    _unique("address", [pair for s in nodes for pair in ((s.name, s), *(((s.address, s),) if s.address else ()))])
    masters = [s for s in nodes if s.master]
    if len(masters) > 1:
        raise UsageError(
            "{at}: {master} is the master already ({other_at})",
            at=masters[1].where,
            master=_shown(masters[0]),
            other_at=masters[0].where,
        )
    _some_only(nodes, "node_rank")
    _some_only(nodes, "start_rank")
    _unique("node-rank", [(s.values["node_rank"], s) for s in nodes if "node_rank" in s.values])
    asked = file.job.values.get("nnodes")
    most = asked[1] if asked else len(nodes)
    for section in nodes:
        rank = section.values.get("node_rank", 0)
        if not 0 <= rank < most:
            raise UsageError(
                "{at}: {section} has node-rank {rank}: with {most} nodes it is 0 to {last}",
                at=section.sources["node_rank"],
                section=_shown(section),
                rank=rank,
                most=most,
                last=most - 1,
            )
        if section.master and rank != 0:
            raise UsageError(
                "{at}: {section} is the master and has node-rank {rank} instead of 0",
                at=section.where,
                section=_shown(section),
                rank=rank,
            )
    for section in nodes:
        _devices_fit(file, section)
    _ranks_fit(file)


def num_ranks(file: ConfigFile, section: Section) -> int | None:
    """Ranks of a node by the file, None where only the node itself knows (gpu, auto)."""
    values = {**file.job.values, **section.values}
    if "nproc_per_node" in values:
        nproc = values["nproc_per_node"]
        return nproc if isinstance(nproc, int) else None
    return len(values["devices"]) if "devices" in values else 1


def _devices_fit(file: ConfigFile, section: Section) -> None:
    values = {**file.job.values, **section.values}
    devices, nproc = values.get("devices"), values.get("nproc_per_node")
    if not devices:
        return
    if len(set(devices)) != len(devices):
        raise UsageError(
            "{at}: {section} names a device twice: {devices}",
            at=section.where,
            section=_shown(section),
            devices=", ".join(devices),
        )
    grouped = values.get("framework") == "jax" and isinstance(nproc, int) and len(devices) % nproc == 0
    if isinstance(nproc, int) and nproc != len(devices) and not grouped:
        raise UsageError(
            "{at}: {section} has {count} devices and nproc-per-node {nproc}; one rank needs one device",
            at=section.where,
            section=_shown(section),
            count=len(devices),
            nproc=nproc,
        )


def _ranks_fit(file: ConfigFile) -> None:
    nodes = file.nodes
    if "start_rank" not in nodes[0].values:
        return
    counts = [num_ranks(file, section) for section in nodes]
    asked = file.job.values.get("nnodes")
    if None in counts or (asked and asked[1] != len(nodes)):
        return  # node 0 checks when all nodes are there
    entries = [
        Entry(
            name=s.name,
            nproc=count or 1,
            start_rank=s.values["start_rank"],
            node_rank=s.values.get("node_rank"),
            arrival=place,
        )
        for place, (s, count) in enumerate(zip(nodes, counts, strict=True))
    ]
    try:
        assign(entries)
    except RanksError as error:
        first = next(s for s in nodes if s.name in error.nodes)
        raise UsageError("{at}: {error}", at=first.sources["start_rank"], error=error) from None


def _some_only(nodes: tuple[Section, ...], dest: str) -> None:
    with_it = [s for s in nodes if dest in s.values]
    without = [s for s in nodes if dest not in s.values]
    if with_it and without:
        name = dest.replace("_", "-")
        raise UsageError(
            "{at}: {one} has {name} and {other} has none; give it to every node or to none",
            at=with_it[0].sources[dest],
            one=_shown(with_it[0]),
            name=name,
            other=_shown(without[0]),
        )


def _unique(what: str, pairs: Sequence[tuple[str | int, Section]]) -> None:
    seen: dict[str | int, Section] = {}
    for value, section in pairs:
        key = value.lower() if isinstance(value, str) else value
        other = seen.setdefault(key, section)
        if other is not section:
            line = section.sources.get(what.replace("-", "_"), section.where)
            raise UsageError(
                "{line}: {section} and {other} both have {what} {value}",
                line=line,
                section=_shown(section),
                other=_shown(other),
                what=what,
                value=value,
            )


def _shown(section: Section) -> str:
    return f'[node."{section.name}"]'
