"""The facts of one machine, or of two to compare, as the evidence of a job; judging them is the check's own way."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from allready.facts.apart import ReaderProcess
from allready.facts.order import CollectedFacts
from allready.judging.loading import load_for_facts
from allready.model import (
    FactMissing,
    Fleet,
    GpuFacts,
    HostFacts,
    ImportFacts,
    LaunchFacts,
    NameFacts,
    NodeFacts,
    NotApplicable,
    NotChecked,
    Reason,
    Report,
    Settings,
    TransportFacts,
    UncheckedKind,
    World,
    WorldNode,
)
from allready.preflight.check.report_series import ReportSeries
from allready.rules.env.children import devices_fail, devices_hang, import_fails, import_hangs
from allready.text.reasons import fact_missing, not_checked, reason

NECESSARY = ("host", "net", "gpu", "rdma", "limits")
"""Facts without which a machine may not be called healthy."""
LONGER_S = 60
"""Within which every import ends that ends at all; for `--timeout`."""
ALONE = frozenset({"roll", "reach", "collectives"})
"""Parts of a job that facts alone cannot have."""


def examine(reader: ReaderProcess, *, latest_s: float) -> CollectedFacts:
    """The facts of this machine, for which the reader was asked.

    Ranks are counted by the GPUs found, unless `launch.sources` says that a number was given.

    Args:
        latest_s: until when the answer is waited for, on the monotonic clock.
    """
    load_for_facts()  # while it reads
    found = reader.found(latest_s=latest_s)
    return replace(found, facts=placed(found.facts))


def placed(facts: NodeFacts) -> NodeFacts:
    """The facts with a job that fits them: a rank for each GPU and a master with an address, where none was given."""
    launch = facts.launch
    if isinstance(launch, FactMissing):
        return facts
    if "nproc_per_node" not in launch.sources and not launch.devices:
        gpus = len(facts.gpu.visible) if isinstance(facts.gpu, GpuFacts) else 0
        launch = replace(launch, nproc_per_node=max(1, gpus))
    address = _address(facts)
    if launch.num_nodes > 1 and "master_addr" not in launch.sources and address:
        facts = _towards(facts, address)
        launch = replace(launch, master_addr=address)
    return replace(facts, launch=launch)


def judge(nodes: Sequence[NodeFacts], settings: Settings | None, *, command: str = "doctor") -> Report:
    """The report about one machine, or about several as if they were nodes of one job.

    Args:
        nodes: the first one is node 0.
        settings: the environment of the first one, to be judged variable by variable.
        command: for the report.
    """
    several = dict(enumerate(nodes if len(nodes) == 1 else _as_one_job(nodes)))
    fleet = Fleet(world=_world(several), nodes=several, settings=settings, inapplicable=ALONE)
    report = ReportSeries(command=command).judge(
        fleet, waiting=False, visible_since=None, unchecked_stages=_missing(several.values())
    )
    hangs = {import_hangs.code, devices_hang.code}
    known = {(node, f.values.get("module")) for f in report.findings if f.code in hangs for node in f.culprits.nodes}
    return replace(report, not_checked=(*report.not_checked, *_slow_imports(several, known)))


def _slow_imports(nodes: Mapping[int, NodeFacts], known: Collection[tuple[int, object]]) -> Iterator[NotChecked]:
    """Imports and devices whose end was not waited for, beside those that a finding names; most are only slow."""
    for number, facts in nodes.items():
        for one in facts.imports.modules if isinstance(facts.imports, ImportFacts) else ():
            steps = (
                (f"import {one.module}", import_fails, one),
                (f"devices of {one.module}", devices_fail, one.devices),
            )
            for what, rule, step in steps:
                if step is not None and step.outcome == "silent" and (number, one.module) not in known:
                    seconds = f"{step.limit_s:.1f}"
                    why = reason(UncheckedKind.NO_END_YET, what=what, seconds=seconds, longer=f"{LONGER_S:g}")
                    yield not_checked(rule.code, why, node=number)


def _missing(nodes: Iterable[NodeFacts]) -> Mapping[str, Reason]:
    found: dict[str, Reason] = {}
    for facts in nodes:
        for name in NECESSARY:
            value = getattr(facts, name)
            if isinstance(value, FactMissing) and not isinstance(value, NotApplicable):
                found[name] = fact_missing(value)
    return found


def _as_one_job(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """The machines as nodes of one job with the first one as node 0; what each was asked to run is of no account."""
    address = _address(nodes[0]) or "127.0.0.1"
    launch = LaunchFacts(
        num_nodes=len(nodes),
        node_rank=0,
        nproc_per_node=1,
        master_addr=address,
        master_port=29500,
        sources={"master_addr": "node 0"},
    )
    return [
        placed(_towards(replace(facts, launch=replace(launch, node_rank=number)), address))
        for number, facts in enumerate(nodes)
    ]


def _world(nodes: Mapping[int, NodeFacts]) -> World:
    members: list[WorldNode] = []
    num_nodes = len(nodes)
    size = 0
    for number, facts in nodes.items():
        launch = facts.launch
        nproc = 1 if isinstance(launch, FactMissing) else launch.nproc_per_node
        if len(nodes) == 1 and not isinstance(launch, FactMissing):
            num_nodes = launch.num_nodes
        name = facts.host.hostname if isinstance(facts.host, HostFacts) else ""
        members.append(WorldNode(node_rank=number, name=name, ranks=tuple(range(size, size + nproc))))
        size += nproc
    return World(num_nodes=num_nodes, world_size=size * num_nodes // len(nodes), nodes=tuple(members))


def _address(facts: NodeFacts) -> str | None:
    """The address by which NCCL would meet its peers."""
    transport = facts.transport
    if not isinstance(transport, TransportFacts) or not transport.nccl.addresses:
        return None
    return transport.nccl.addresses[0]


def _towards(facts: NodeFacts, address: str) -> NodeFacts:
    names = facts.names
    if not isinstance(names, NameFacts):
        return facts
    return replace(
        facts, names=replace(names, master_name=address, master_addresses=(address,), master_error=None, phrases={})
    )
