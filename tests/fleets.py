"""Made-up fleets for tests of rules: `fleet(4)` is four healthy nodes, so a test shows only what differs.

    [hit] = check("NET003", fleet(4, net={2: with_mtu(1500)})).hits

Public: use it for rules of your own.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from allready import model
from allready.judging.engine import RuleOutcome, run
from allready.judging.loading import load
from allready.model.facts import ChoiceStep
from allready.model.fill import fill_steps

__all__ = [
    "address_of",
    "check",
    "claim",
    "fleet",
    "healthy_collectives",
    "healthy_node",
    "healthy_path",
    "healthy_reach",
    "healthy_roll",
]

GIB = 2**30
NPROC = 2
PAYLOADS_BYTES = (64, 1400, 9000, 2**20)


def check(code: str, fleet: model.Fleet) -> RuleOutcome:
    """Ask one rule."""
    return run(load()[code], fleet)


def commands(code: str, hit: model.Hit) -> list[str]:
    """The commands of a hit's remedy, with everything known filled in."""
    return [remedy.command for remedy in fill_steps(load()[code].steps, hit.values) if remedy.command]


def address_of(node_rank: int) -> str:
    """10.0.0.1 for node 0, and so on; the first 254 nodes are on 10.0.0.0/24."""
    return f"10.0.{(node_rank + 1) // 256}.{(node_rank + 1) % 256}"


def healthy_node(node_rank: int, num_nodes: int) -> model.NodeFacts:
    """One node with two GPUs on 10.0.0.0/24, node rank r being gpu{r} at 10.0.0.{r+1}."""
    address = address_of(node_rank)
    master = "10.0.0.1"
    eth0 = model.Interface(
        name="eth0",
        is_up=True,
        is_loopback=False,
        mtu_bytes=9000,
        addresses=(f"{address}/24",),
        speed_mbit_per_s=100_000,
        mac=f"02:00:00:00:00:{node_rank + 1:02x}",
        driver="mlx5_core",
    )
    lo = model.Interface(
        name="lo", is_up=True, is_loopback=True, mtu_bytes=65536, addresses=("127.0.0.1/8",), kind="loopback"
    )
    gpus = tuple(
        model.Gpu(
            index=i,
            uuid=f"GPU-{node_rank:04d}-{i}",
            name="NVIDIA H200",
            pci_bus_id=f"00000000:{i + 1:02X}:00.0",
            memory_total_bytes=141 * GIB,
            memory_used_bytes=GIB // 2,
        )
        for i in range(NPROC)
    )
    choice = model.InterfaceChoice(
        variable="NCCL_SOCKET_IFNAME", pattern=None, interfaces=("eth0",), addresses=(address,), step=ChoiceStep.ALL_BUT
    )
    facts = model.NodeFacts(
        launch=model.LaunchFacts(
            num_nodes=num_nodes,
            node_rank=node_rank,
            nproc_per_node=NPROC,
            master_addr=master,
            master_port=29500,
            backend="nccl",
        ),
        host=model.HostFacts(
            hostname=f"gpu{node_rank}",
            kernel="6.1.0",
            os_name="Debian GNU/Linux 12",
            num_cpus=64,
            memory_bytes=512 * GIB,
            boot_id=f"boot-{node_rank}",
        ),
        names=model.NameFacts(
            own_name=f"gpu{node_rank}", own_addresses=(address,), master_name=master, master_addresses=(master,)
        ),
        net=model.NetFacts(
            interfaces=(lo, eth0),
            routes=(
                model.Route(destination="0.0.0.0/0", interface="eth0", gateway="10.0.0.254"),
                model.Route(destination="10.0.0.0/24", interface="eth0"),
            ),
            local_port_range=(32768, 60999),
            tcp_mtu_probing=0,
        ),
        transport=model.TransportFacts(nccl=choice, gloo=replace(choice, variable="GLOO_SOCKET_IFNAME")),
        rdma=model.RdmaFacts(
            ports=(
                model.RdmaPort(
                    device="mlx5_0",
                    port=1,
                    state="ACTIVE",
                    physical_state="LinkUp",
                    link_layer="InfiniBand",
                    rate_gbit_per_s=400.0,
                ),
            )
        ),
        gpu=model.GpuFacts(gpus=gpus, driver_version="580.159.04", cuda_version="13.0", visible=tuple(range(NPROC))),
        software=model.SoftwareFacts(
            versions={
                "python": "3.12.3",
                "torch": "2.13.0+cu130",
                "torch-cuda": "13.0",
                "nccl": "2.28.9",
                "numpy": "2.2.0",
                "allready": "0.1.0",
            }
        ),
        limits=model.LimitFacts(
            memlock_bytes=None,
            nofile_soft=65536,
            nofile_hard=1048576,
            shm_total_bytes=256 * GIB,
            shm_free_bytes=255 * GIB,
        ),
        env=model.EnvFacts(variables={"NCCL_DEBUG": "WARN"}),
        script=model.ScriptFacts(path="train.py", sha256="ab" * 32, size_bytes=4096),
        firewall=model.FirewallFacts(tool=None),
    )
    if node_rank == 0:
        return replace(facts, master_port=model.MasterPortFacts(port=29500, opened=True))
    return replace(
        facts,
        clock=model.ClockFacts(offset_s=0.0001, uncertainty_s=0.0002),
        master_contact=model.MasterContactFacts(
            outcome="joined", master_addr=master, master_port=29500, addresses=(master,), address=master, attempts=1
        ),
    )


def healthy_roll(num_nodes: int) -> model.RollCall:
    """All ranks came within half a second."""
    return model.RollCall(
        num_nodes=num_nodes, waited_s=0.5, claims=tuple(claim(r, num_nodes) for r in range(num_nodes))
    )


def claim(node_rank: int, num_nodes: int, **changes: Any) -> model.Claim:
    """A healthy node's words at node 0."""
    healthy = model.Claim(
        node_rank=node_rank,
        name=f"gpu{node_rank}",
        address=address_of(node_rank),
        pid=1000 + node_rank,
        num_nodes=num_nodes,
        nproc_per_node=NPROC,
        job_id="none",
        arrival_s=0.1 * node_rank,
        master_addr="10.0.0.1",
    )
    return replace(healthy, **changes)


def healthy_path(src: int, dst: int, **changes: Any) -> model.PathProbe:
    """A TCP path that carries every payload."""
    healthy = model.PathProbe(
        src=src,
        dst=dst,
        kind="data",
        address=address_of(dst),
        port=40000 + dst,
        outcome="ok",
        interface="eth0",
        src_address=address_of(src),
        passed_bytes=PAYLOADS_BYTES,
        rtt_s=0.0001,
        throughput_gb_per_s=2.0,
    )
    return replace(healthy, **changes)


def healthy_reach(
    num_nodes: int,
    paths: Mapping[tuple[int, int], Mapping[str, Any]] | None = None,
    datagrams: Mapping[tuple[int, int], Mapping[str, Any]] | None = None,
) -> model.Reachability:
    """All ordered pairs reach each other; `paths` and `datagrams` change single directions: {(0, 1): {...}}."""
    paths, datagrams = paths or {}, datagrams or {}
    pairs = [(a, b) for a in range(num_nodes) for b in range(num_nodes) if a != b]
    sizes = (92, 1428, 1500, 9000)
    return model.Reachability(
        paths=tuple(healthy_path(a, b, **paths.get((a, b), {})) for a, b in pairs),
        datagrams=tuple(
            replace(
                model.DatagramProbe(src=a, dst=b, address=address_of(b), sent_bytes=sizes, received_bytes=sizes),
                **datagrams.get((a, b), {}),
            )
            for a, b in pairs
        ),
        num_pairs_all=len(pairs) // 2,
        num_pairs_planned=len(pairs) // 2,
        num_pairs_done=len(pairs) // 2,
    )


def healthy_collectives(world_size: int, backend: str = "nccl") -> model.Collectives:
    """One run in which every stage ended well."""
    ranks = tuple(range(world_size))
    names = ("import", "device", "allocate", "store", "gloo_barrier", "nccl_init", "nccl_small", "sweep")
    return model.Collectives(
        runs=(
            model.CollectiveRun(
                label="all",
                backend=backend,
                ranks=ranks,
                stages=tuple(
                    model.StageResult(
                        name=n, outcome="ok", deadline_s=30.0, duration_s=0.2, entered=ranks, finished=ranks
                    )
                    for n in names
                ),
                points=(
                    model.BenchPoint(
                        size_bytes=2**20,
                        time_s=1e-4,
                        algbw_gb_per_s=10.5,
                        busbw_gb_per_s=15.7,
                        num_errors=0,
                        num_iterations=20,
                    ),
                ),
            ),
        )
    )


def fleet(num_nodes: int, **changes: Any) -> model.Fleet:
    """`num_nodes` healthy nodes, with these changes.

    Args:
        num_nodes: 1 or more.
        changes: a fact's name -> {node_rank: fact or FactMissing}, or a part of the job ("roll", "reach",
            "collectives", "world", "why_not") -> its value; None takes the part away.
    """
    nodes = {r: healthy_node(r, num_nodes) for r in range(num_nodes)}
    parts: dict[str, Any] = {
        "world": model.World(
            num_nodes=num_nodes,
            world_size=num_nodes * NPROC,
            nodes=tuple(
                model.WorldNode(node_rank=r, name=f"gpu{r}", ranks=tuple(range(r * NPROC, (r + 1) * NPROC)))
                for r in range(num_nodes)
            ),
        )
    }
    # Made only where no other one is given: the paths of thousands of nodes take minutes.
    if "roll" not in changes:
        parts["roll"] = healthy_roll(num_nodes)
    if "reach" not in changes:
        parts["reach"] = healthy_reach(num_nodes)
    if "collectives" not in changes:
        parts["collectives"] = healthy_collectives(num_nodes * NPROC)
    for name, change in changes.items():
        if name == "why_not":
            parts[name] = {
                part: model.Reason(kind=model.UncheckedKind.UNSPECIFIED, values={"why": why})
                for part, why in change.items()
            }
        elif name in {"world", "roll", "reach", "collectives", "inapplicable", "settings", "runtime"}:
            parts[name] = change
        else:
            for node_rank, fact in change.items():
                nodes[node_rank] = replace(nodes[node_rank], **{name: fact})
    return model.Fleet(nodes=nodes, **parts)
