"""What NCCL said of its transports: versions, settings, sockets and shared memory."""

from collections.abc import Iterable, Iterator, Mapping

from allready import model
from allready.judging.majority import Split, is_minority
from allready.judging.node_split import brief, not_set
from allready.judging.registry import Layer, Rule
from allready.judging.run_signs import who
from allready.judging.stated import said, stated
from allready.model import (
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    Phrase,
    Raised,
    RemedyStep,
    RunEvidence,
    Severity,
    Situation,
    ranges,
)


def ranks_differ(
    run: RunEvidence,
    name: str,
    values: Mapping[int, str | None],
    *,
    severity: Severity | None = None,
    variables: Iterable[str] = (),
) -> Iterator[Hit]:
    """The ranks with another value of `name` than the majority; without one all sides, and no rank is accused."""
    split = Split.by(values, num_members=run.expected_ranks)
    if len(split) > 1:
        odd = split.outliers()
        shown = odd or tuple(group[0] for _, group in split.groups)
        yield Hit(
            severity=severity,
            culprits=Culprits(ranks=odd, variables=tuple(variables)),
            values={
                "name": name,
                "who": who(run, odd) if odd else None,
                "odd": tuple(_value(v) for v in sorted({values[r] for r in odd}, key=lambda v: v or "")),
                "usual": _value(split.groups[0][0]),
                "split": None if odd else brief(split, without=not_set),
            },
            evidence=rank_evidence(
                run,
                {r: said("{name} {value}", name=name, value=_value(values[r])) for r in (*shown, *list(values)[:1])},
                6,
            ),
        )


def _value(value: str | None) -> Phrase:
    """A value as it was logged, or that there is none."""
    return said("(not set)") if value is None else said("{value}", value=value)


def rank_evidence(run: RunEvidence, texts: Mapping[int, str | Phrase], most: int) -> tuple[Evidence, ...]:
    """What the logs of these ranks show, in the order of the logs."""
    shown = [(p, texts[p.rank]) for p in run.processes if p.rank is not None and p.rank in texts]
    return tuple(
        stated(", ".join(p.sources[:1]), "rank {rank}: {text}", rank=p.rank, text=text) for p, text in shown[:most]
    )


@Rule(
    code="FAB003",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="Ranks of one job ran with different versions",
    message="[[{who} {who:has/have} {name} {odd}, the others have {usual}|{name} differs between ranks: "
    "{split}|{name} differs between ranks]]",
    remedy=RemedyStep(
        explanation="install the same {name} on every node and start again; compare the library path too",
        where="every node",
        command="env | grep -E 'LD_LIBRARY_PATH|LD_PRELOAD'",
    ),
)
def versions_differ(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    The versions of NCCL, CUDA and the driver in the ranks' own logs and dumps.
    ## Why it matters
    Different NCCL versions hang or fail with truncated messages in the bootstrap; different drivers are only a warning.
    ## Check by hand
    `grep -h "NCCL version" nccl.*.log | sort | uniq -c`
    ## When it is harmless
    Different drivers that support the same CUDA version.
    """
    for name in sorted({name for p in run.processes for name in p.versions}):
        values = {p.rank: p.versions[name] for p in run.processes if p.rank is not None and name in p.versions}
        yield from ranks_differ(run, name, values, severity=Severity.WARNING if "driver" in name else None)


OWN = {"NCCL_HOSTID", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_DEBUG_FILE", "NCCL_TOPO_FILE", "NCCL_COMM_ID"}
"""May well differ from node to node."""

_OF_CONNECTIONS = ("NCCL_IB_", "NCCL_SOCKET_", "NCCL_NSOCKS_", "NCCL_NET_")
"""NCCL reads them when a process connects to another node, which of each node only some do."""


@Rule(
    code="FAB004",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    raised=Raised(where=Situation.FIRST_CALLS),
    title="A variable that NCCL read differs between ranks",
    message="[[{who} {who:has/have} {name} {odd}, the others {usual}|{name} differs between ranks: {split}|{name} "
    "differs between ranks]]",
    remedy=RemedyStep(
        explanation="set {name} to the same value on every node (or nowhere); torchrun, mpirun -x and srun --export "
        "pass variables on differently",
        where="every node",
        command="env | grep {name}",
    ),
)
def settings_differ(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL's own lines ("NAME set by environment to VALUE") of every rank.
    ## Why it matters
    NCCL_ALGO, NCCL_PROTO, NCCL_BUFFSIZE and others must be equal, or ranks wait for messages of other sizes.
    ## Check by hand
    `grep -h "set by environment" nccl.*.log | sort | uniq -c`
    ## When it is harmless
    Interfaces, HCAs and host names, which may differ by node, are not reported; nor is a variable of network
    connections that only some processes of a node have read.
    """
    ranks = {p.rank: p.env for p in run.processes if p.rank is not None and p.comms}
    hosts = {p.rank: p.host for p in run.processes if p.rank is not None}
    for name in sorted({n for env in ranks.values() for n in env} - OWN):
        readers = {hosts[rank] for rank, env in ranks.items() if name in env}
        values = {
            rank: env.get(name)
            for rank, env in ranks.items()
            if name in env or hosts[rank] not in readers or not name.startswith(_OF_CONNECTIONS)
        }
        yield from ranks_differ(run, name, values, variables=[name])


@Rule(
    code="FAB002",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    raised=Raised(where=Situation.FIRST_CALLS, fault_class=FaultClass.ENV_MISMATCH),
    title="Some ranks use sockets where others use a faster network",
    message="ranks {slow} use {slow_net}, ranks {fast} use {fast_net}",
    remedy=RemedyStep(
        explanation="find why NCCL did not use the faster network: NCCL_IB_HCA, NCCL_IB_DISABLE, NCCL_NET, "
        "/dev/infiniband in the container, the plugin's library",
        where="the node of ranks {slow}",
        command="ibstat || ls /sys/class/infiniband; env | grep NCCL_",
    ),
)
def sockets_beside_rdma(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL's "Using network" line of every rank: ranks with Socket beside ranks with anything else.
    ## Why it matters
    A wrong NCCL_IB_HCA or a port that is down causes no error: NCCL falls back to sockets, far slower,
    and the whole job runs at that pace.
    ## Check by hand
    `grep -h "Using network" nccl.*.log | sort | uniq -c`
    ## When it is harmless
    Never in one job.
    """
    networks = {p.rank: p.network for p in run.processes if p.rank is not None and p.network}
    sockets = tuple(sorted(r for r, n in networks.items() if n == "Socket"))
    others = tuple(sorted(r for r, n in networks.items() if n != "Socket"))
    if sockets and others:
        nodes = tuple(sorted({run.node_of_rank[r] for r in sockets if r in run.node_of_rank}))
        few = is_minority(len(sockets), len(networks))
        yield Hit(
            culprits=Culprits(ranks=sockets, nodes=nodes) if few else Culprits(),
            values={
                "slow": ranges(sockets),
                "slow_net": "Socket",
                "fast": ranges(others),
                "fast_net": ", ".join(sorted({str(networks[r]) for r in others})),
            },
            evidence=rank_evidence(run, {r: f"Using network {network}" for r, network in networks.items()}, 8),
        )


@Rule(
    code="FAB001",
    severity=model.Severity.WARNING,
    fault_class=model.FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="GPUs of one node communicate through host memory",
    message="ranks {ranks} reach GPUs of their own node through {how}, not peer to peer{reason}",
    remedy=(
        model.RemedyStep(
            explanation="unset the switches if they are set",
            where="every node",
            command="unset NCCL_P2P_DISABLE NCCL_P2P_LEVEL",
        ),
        model.RemedyStep(
            explanation="else find why the driver offers no peer access: IOMMU and ACS, virtual machine, container "
            "isolation",
            where="the node of ranks {ranks}",
            command="nvidia-smi topo -p2p r; lspci -vvv | grep ACSCtl",
        ),
    ),
)
def shm_within_node(run: model.RunEvidence) -> Iterator[model.Hit]:
    """
    ## What it checks
    NCCL's Channel lines: pairs on one node that are connected via SHM or NET instead of P2P.
    ## Why it matters
    NVLink carries hundreds of GB/s, PCIe peer to peer tens; through host memory it is some GB/s, and it takes CPU time.
    ## Check by hand
    `grep "Channel 00" nccl.log | grep via`; `nvidia-smi topo -m`.
    ## When it is harmless
    On machines whose GPUs have neither NVLink nor peer access.
    """
    slow: dict[int, str] = {}
    asked = False
    for process in run.processes:
        if process.rank is None:
            continue
        here = run.node_of_rank.get(process.rank)
        asked = asked or process.env.get("NCCL_P2P_DISABLE", "0") not in {"0", ""}
        for transport in process.transports:
            if not _in_global_ranks(transport, process, run):
                continue
            other = transport.dst if transport.direction != "receive" else transport.src
            if other == process.rank or here is None or run.node_of_rank.get(other) != here:
                continue
            if transport.how.startswith(("SHM", "direct shared memory", "NET")):
                slow[process.rank] = transport.how
    if slow:
        yield model.Hit(
            culprits=model.Culprits(variables=("NCCL_P2P_DISABLE",) if asked else ()),
            values={
                "ranks": model.ranges(tuple(sorted(slow))),
                "how": ", ".join(sorted(set(slow.values()))[:3]),
                "reason": " (NCCL_P2P_DISABLE=1)" if asked else "",
            },
            evidence=rank_evidence(run, slow, 6),
        )


def _in_global_ranks(transport: model.Transport, process: model.ProcessRecord, run: model.RunEvidence) -> bool:
    """A connection of a smaller group is logged in that group's own ranks."""
    whole = {c.comm for c in process.comms if c.parent is None and c.nranks == run.expected_ranks}
    return transport.comm in whole if transport.comm is not None else len(process.comms) < 2
