"""Machines that are healthy, whatever they lack: `doctor` finds nothing above information on any of them."""

from typing import Any

from msgspec.structs import replace

from allready.model import (
    Bond,
    BondLink,
    BusFacts,
    DropRule,
    EnvFacts,
    FactMissing,
    FilterView,
    FirewallFacts,
    Gpu,
    GpuFacts,
    GpuPair,
    GpuProcess,
    HostFacts,
    Import,
    ImportFacts,
    Interface,
    InterfaceChoice,
    LaunchFacts,
    LimitFacts,
    NameFacts,
    NetFacts,
    NodeFacts,
    P2pStatus,
    PciGpu,
    PortHolder,
    RdmaFacts,
    RdmaPort,
    Route,
    Settings,
    Severity,
    SoftwareFacts,
    Status,
    TimeFacts,
    TransportFacts,
    UsageFacts,
    Volume,
    Xid,
)
from allready.preflight.doctor.examine import judge, placed
from tests.cases import cases
from tests.facts.helpers import LO, interface
from tests.fleets import GIB, healthy_node

MIB = 2**20
LAUNCH = LaunchFacts(num_nodes=1, node_rank=0, nproc_per_node=1, master_addr="127.0.0.1", master_port=29500)
NO_GPU = GpuFacts(gpus=())
NO_RDMA = RdmaFacts(ports=())
IMPORTED = ImportFacts(modules=(Import(module="torch", outcome="imported", versions={"torch": "2.13.0"}),))
DISK = Volume(path="/home/a", total_bytes=500 * GIB, free_bytes=200 * GIB, num_inodes=1000, num_free_inodes=900)
USAGE = UsageFacts(volumes=(DISK,), num_tracked=120, max_tracked=262_144)


def node(**changes: Any) -> NodeFacts:
    facts = replace(healthy_node(0, 1), launch=LAUNCH, imports=IMPORTED, usage=USAGE)
    return replace(facts, **changes)


def cpu(**changes: Any) -> NodeFacts:
    """Without GPUs and RDMA, with a torch for CPUs."""
    software = SoftwareFacts(versions={"python": "3.12.3", "torch": "2.13.0+cpu", "allready": "0.1.0"})
    return node(**{"gpu": NO_GPU, "rdma": NO_RDMA, "software": software, **changes})


def net(*interfaces: Interface, routes: tuple[Route, ...] = ()) -> NetFacts:
    default = Route(destination="0.0.0.0/0", interface=interfaces[0].name, gateway="10.0.0.254")
    return NetFacts(interfaces=(LO, *interfaces), routes=routes or (default,), local_port_range=(32768, 60999))


def mtu(card: Interface, mtu_bytes: int) -> Interface:
    return replace(card, mtu_bytes=mtu_bytes)


def sockets(name: str, address: str, gloo: tuple[str, str] | None = None) -> TransportFacts:
    def choice(variable: str, interface: str, own: str) -> InterfaceChoice:
        return InterfaceChoice(variable=variable, pattern=None, interfaces=(interface,), addresses=(own,))

    return TransportFacts(
        nccl=choice("NCCL_SOCKET_IFNAME", name, address), gloo=choice("GLOO_SOCKET_IFNAME", *(gloo or (name, address)))
    )


def names(*addresses: str) -> NameFacts:
    return NameFacts(own_name="box", own_addresses=addresses, master_name="127.0.0.1", master_addresses=("127.0.0.1",))


def host(container: str | None = None, num_cpus: int = 8, memory: int = 16 * GIB) -> HostFacts:
    return HostFacts(
        hostname="box", kernel="6.8.0", os_name="Ubuntu", container=container, num_cpus=num_cpus, memory_bytes=memory
    )


def limits(memlock: int | None = 8 * MIB, nofile: int = 1024, shm: int = 8 * GIB) -> LimitFacts:
    return LimitFacts(
        memlock_bytes=memlock, nofile_soft=nofile, nofile_hard=1_048_576, shm_total_bytes=shm, shm_free_bytes=shm
    )


def gpus(count: int, name: str = "NVIDIA H200", **changes: Any) -> GpuFacts:
    found = tuple(
        Gpu(
            index=i,
            uuid=f"GPU-{i}",
            name=name,
            pci_bus_id=f"00000000:{i + 1:02X}:00.0",
            memory_total_bytes=80 * GIB,
            memory_used_bytes=changes.get("used", 0),
            num_uncorrected=0,
            is_remap_pending=False,
            has_remap_failed=False,
            compute_mode=changes.get("mode", "default"),
            processes=changes.get("processes", ()),
        )
        for i in range(count)
    )
    return GpuFacts(gpus=found, driver_version="580.1", cuda_version="13.0", visible=tuple(range(count)))


def rdma(*ports: tuple[str, str, str, str]) -> RdmaFacts:
    return RdmaFacts(
        ports=tuple(
            RdmaPort(device=device, port=1, state=state, physical_state=physical, link_layer=layer)
            for device, state, physical, layer in ports
        )
    )


UFW = FirewallFacts(
    tool="ufw",
    drops=(DropRule(text="-P INPUT DROP", verdict="drop", chain="INPUT", hooks=("input",), is_policy=True),),
    dropped_ports=((1, 65535),),
)
ETH = interface("eth0", "10.0.0.1/24")
UP_DOCKER = replace(interface("docker0", "172.17.0.1/16"), kind="bridge")
BUS = BusFacts(
    gpus=tuple(PciGpu(address=f"0000:0{i}:00.0", bridges=("0000:00:01.1",)) for i in (1, 2)),
    redirecting=("0000:00:01.1",),
    iommu="translated",
    is_virtual=False,
    usable_cpus="0-63",
)
MACHINES: dict[str, NodeFacts] = {
    "a server with two H200": node(),
    "a DGX with eight GPUs": node(gpu=gpus(8), host=host(num_cpus=224, memory=2048 * GIB), limits=limits(None, 65536)),
    "a DGX whose programs had errors, whose clocks are low for idleness and whose links sleep": node(
        gpu=replace(
            gpus(8),
            gpus=tuple(
                replace(
                    one, nvlinks=(True,) * 18, pcie_width=16, max_pcie_width=16, fabric_state="completed", is_mig=False
                )
                for one in gpus(8).gpus
            ),
            xids=tuple(
                Xid(pci_bus_id="0000:01:00", code=code, age_s=60.0, text="NVRM: Xid") for code in (13, 31, 43, 94)
            ),
        ),
        host=host(num_cpus=224, memory=2048 * GIB),
        limits=replace(limits(None, 65536), num_tasks=2000, max_tasks=629_145, ptrace_scope=1, can_ptrace=False),
        net=replace(net(ETH, interface("eth1", "10.1.0.1/24")), rp_filter={"eth0": 1, "eth1": 1}, tcp_retries2=8),
        software=SoftwareFacts(versions={"jax": "0.9.0", "jaxlib": "0.9.0", "jax-cuda12-plugin": "0.9.0"}),
        env=EnvFacts(variables={"OMP_NUM_THREADS": "16"}),
    ),
    "a GPU in slices": node(
        gpu=replace(gpus(1), gpus=(replace(gpus(1).gpus[0], is_mig=True, num_mig=7, fabric_state="in_progress"),))
    ),
    "a laptop with Wi-Fi, Docker and a firewall": cpu(
        host=host(),
        limits=limits(),
        names=names("127.0.1.1"),
        firewall=UFW,
        net=net(
            replace(interface("wlan0", "192.168.1.7/24"), kind="wireless"),
            replace(interface("docker0", "172.17.0.1/16", up=False), kind="bridge"),
        ),
        transport=sockets("wlan0", "192.168.1.7", ("lo", "127.0.0.1")),
    ),
    "a plain container": cpu(host=host("docker", 2), limits=limits(shm=64 * MIB), names=names("172.17.0.2")),
    "a container with one CPU": cpu(host=host("docker", 1, 2 * GIB), limits=limits(64 * 1024)),
    "a pod with half its memory used": cpu(
        host=host("kubernetes", 4), usage=replace(USAGE, memory_limit_bytes=8 * GIB, memory_used_bytes=4 * GIB)
    ),
    "a virtual machine": cpu(host=host(), net=net(replace(ETH, driver="virtio_net"))),
    "a node without RDMA": node(rdma=NO_RDMA),
    "an idle second network card": node(net=net(ETH, interface("eth1", up=False))),
    "InfiniBand ports without a cable": node(
        rdma=rdma(("mlx5_0", "ACTIVE", "LinkUp", "InfiniBand"), ("mlx5_1", "DOWN", "Polling", "InfiniBand"))
    ),
    "all InfiniBand ports disabled": node(rdma=rdma(("mlx5_0", "DOWN", "Disabled", "InfiniBand"))),
    "RoCE": node(rdma=rdma(("mlx5_0", "ACTIVE", "LinkUp", "Ethernet")), limits=limits(None, 65536)),
    "EFA with two addresses in one network": node(
        rdma=rdma(("efa_0", "ACTIVE", "LinkUp", "Unspecified")),
        net=net(
            ETH,
            interface("eth1", "10.0.0.2/24"),
            routes=(
                Route(destination="10.0.0.0/24", interface="eth0"),
                Route(destination="10.0.0.0/24", interface="eth1"),
            ),
        ),
    ),
    "a second default route with a higher metric": node(
        net=net(
            ETH,
            interface("eth1", "10.1.0.1/24"),
            routes=(
                Route(destination="0.0.0.0/0", interface="eth0", gateway="10.0.0.254", metric=100),
                Route(destination="0.0.0.0/0", interface="eth1", gateway="10.1.0.254", metric=200),
            ),
        )
    ),
    "a node with GPUs in exclusive mode": node(gpu=gpus(2, mode="exclusive_process")),
    "a workstation whose desktop uses the GPU": node(
        gpu=gpus(
            1,
            "NVIDIA RTX 6000",
            used=400 * MIB,
            processes=(GpuProcess(pid=900, user="root", command="Xorg", used_bytes=300 * MIB),),
        ),
        host=host(),
    ),
    "an AMD machine": node(
        gpu=NO_GPU,
        rdma=NO_RDMA,
        software=SoftwareFacts(versions={"python": "3.12.3", "torch": "2.13.0+rocm7.1", "torch-hip": "7.1"}),
    ),
    "eight GPUs of AMD, which NVML does not know": node(
        gpu=GpuFacts(gpus=(), num_amd=8),
        software=SoftwareFacts(versions={"python": "3.12.3", "torch": "2.13.0+rocm7.1", "torch-hip": "7.1"}),
        bus=BusFacts(
            gpus=tuple(PciGpu(address=f"0000:{i}3:00.0", numa_node=i // 4, cpus="0-95") for i in range(8)),
            redirecting=("0000:00:01.1",),
            iommu="passthrough",
            is_virtual=False,
            usable_cpus="0-191",
        ),
    ),
    "a workstation with two cards that have no P2P, an IOMMU and ACS": node(
        gpu=replace(gpus(2, "NVIDIA GeForce RTX 4090"), pairs=(GpuPair(a=0, b=1, p2p=P2pStatus.GPU, level="PHB"),)),
        bus=BUS,
        time=TimeFacts(is_synchronized=True, services=("systemd-timesyn",)),
    ),
    "a guest with four GPUs, whose bus is made up and whose clock the host sets": node(
        gpu=replace(
            gpus(4),
            pairs=tuple(
                GpuPair(a=a, b=b, p2p=P2pStatus.CHIPSET, level="PHB")
                for a, b in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
            ),
        ),
        bus=replace(BUS, is_virtual=True),
        time=TimeFacts(is_synchronized=False),
    ),
    "two processors, with GPUs beside each, a wide range of ports and chrony that tells the kernel nothing": node(
        gpu=replace(gpus(2), pairs=(GpuPair(a=0, b=1, p2p=P2pStatus.OK, level="SYS"),)),
        bus=replace(
            BUS,
            gpus=(
                PciGpu(address="0000:01:00.0", numa_node=0, cpus="0-31"),
                PciGpu(address="0000:02:00.0", numa_node=1, cpus="32-63"),
            ),
            redirecting=(),
            num_unread=4,
        ),
        net=replace(net(ETH), local_port_range=(1024, 65535), somaxconn=128),
        time=TimeFacts(is_synchronized=False, services=("chronyd",)),
    ),
    "a container whose shell reaps late": cpu(
        host=host("docker"),
        usage=replace(USAGE, num_zombies=12, zombie_parent=PortHolder(pid=1, command="bash"), num_parents_zombies=12),
    ),
    "a machine without torch": cpu(
        software=SoftwareFacts(versions={"python": "3.11.2", "allready": "0.1.0"}), imports=ImportFacts(modules=())
    ),
    "an import that is slow": node(
        imports=ImportFacts(
            modules=(
                Import(
                    module="torch", outcome="silent", duration_s=2.2, limit_s=2.2, recent_cpu_s=0.9, state="running"
                ),
            )
        )
    ),
    "a container on a read-only image": cpu(
        host=host("apptainer"),
        usage=UsageFacts(volumes=(Volume(path="/", total_bytes=3 * GIB, free_bytes=0, is_read_only=True),)),
    ),
    "a gateway with a large table of connections": cpu(
        host=host(), usage=replace(USAGE, num_tracked=900_000, max_tracked=4_000_000)
    ),
    "a Kubernetes node with many veths": cpu(
        host=host(),
        net=net(
            ETH,
            replace(interface("cni0", "10.244.0.1/24"), kind="bridge"),
            *(replace(interface(f"veth{i}"), kind="veth") for i in range(60)),
        ),
    ),
    "a login node without IPv4": cpu(
        host=host(),
        net=net(interface("eth0", "2001:db8::1/64")),
        transport=sockets("eth0", "2001:db8::1"),
        names=names("2001:db8::1"),
    ),
    "a node with a 10 TB disk, 1 % of it free": cpu(
        host=host(),
        usage=replace(USAGE, volumes=(Volume(path="/data", total_bytes=10_000 * GIB, free_bytes=100 * GIB),)),
    ),
    "a WSL2 laptop, whose kernel has a stub of a GPU and no synchronized clock": node(
        host=replace(host(num_cpus=12, memory=8 * GIB), kernel="5.15.167.4-microsoft-standard-WSL2"),
        gpu=gpus(1, "NVIDIA GeForce RTX 4070 Laptop GPU", used=900 * MIB),
        rdma=NO_RDMA,
        limits=limits(64 * MIB, 1024, 4 * GIB),
        names=names("127.0.1.1"),
        net=net(mtu(interface("eth0", "172.29.12.7/20"), 1420)),
        transport=sockets("eth0", "172.29.12.7", ("lo", "127.0.0.1")),
        time=TimeFacts(is_synchronized=False),
    ),
    "a Raspberry Pi": cpu(
        host=host(num_cpus=4, memory=4 * GIB),
        limits=limits(512 * 1024, 1024, 2 * GIB),
        names=names("127.0.1.1"),
        net=net(interface("eth0", "192.168.1.21/24"), replace(interface("wlan0", "192.168.1.22/24"), kind="wireless")),
        transport=sockets("eth0", "192.168.1.21", ("lo", "127.0.0.1")),
        usage=replace(USAGE, volumes=(Volume(path="/", total_bytes=29 * GIB, free_bytes=11 * GIB),)),
    ),
    "a pod that may not read the packet filter": cpu(
        host=host("kubernetes", 4, 16 * GIB),
        firewall=FactMissing("reading the packet filter needs root (CAP_NET_ADMIN)"),
        limits=replace(limits(64 * 1024 * MIB, 1_048_576, 16 * GIB), num_tasks=40, max_tasks=None),
        net=net(mtu(interface("eth0", "10.244.3.17/32"), 1450)),
        names=names("10.244.3.17"),
        transport=sockets("eth0", "10.244.3.17"),
    ),
    "a cloud's machine with gVNIC and jumbo frames": node(
        rdma=NO_RDMA,
        net=net(*(replace(mtu(interface(f"eth{i}", f"10.{i}.0.5/32"), 8244), driver="gve") for i in range(9))),
        transport=sockets("eth0", "10.0.0.5"),
        names=names("10.0.0.5"),
        gpu=gpus(8, "NVIDIA H100 80GB HBM3"),
        bus=replace(BUS, is_virtual=True),
    ),
    "a p5 with 32 EFA devices": node(
        gpu=gpus(8, "NVIDIA H100 80GB HBM3"),
        limits=limits(None, 8192),
        rdma=rdma(*((f"rdmap{i}s0", "ACTIVE", "LinkUp", "Unspecified") for i in range(32))),
        net=net(replace(mtu(interface("enp71s0", "172.31.4.9/20"), 9001), driver="ena"), UP_DOCKER),
        transport=sockets("enp71s0", "172.31.4.9"),
        names=names("172.31.4.9"),
    ),
    "a guest of Azure with eight InfiniBand ports and one Ethernet function": node(
        gpu=gpus(8, "NVIDIA H100 80GB HBM3"),
        limits=limits(None, 1_048_576),
        rdma=rdma(
            *((f"mlx5_ib{i}", "ACTIVE", "LinkUp", "InfiniBand") for i in range(8)),
            ("mlx5_an0", "ACTIVE", "LinkUp", "Ethernet"),
        ),
        net=net(interface("eth0", "10.7.0.4/24"), *(interface(f"ib{i}", up=False) for i in range(8))),
        transport=sockets("eth0", "10.7.0.4"),
        names=names("10.7.0.4"),
        bus=replace(BUS, is_virtual=True),
    ),
    "a Grace Hopper": node(
        gpu=gpus(1, "NVIDIA GH200 480GB"),
        host=host(num_cpus=72, memory=480 * GIB),
        rdma=rdma(("mlx5_0", "ACTIVE", "LinkUp", "InfiniBand")),
        limits=limits(None, 65536),
    ),
    "rootless podman": cpu(
        host=host("podman", 8, 32 * GIB),
        limits=limits(8 * MIB, 524_288, 64 * MIB),
        net=net(replace(mtu(interface("tap0", "10.0.2.100/24"), 65520), kind="tunnel")),
        names=names("10.0.2.100"),
        transport=sockets("tap0", "10.0.2.100"),
        firewall=FactMissing("reading the packet filter needs root (CAP_NET_ADMIN)"),
    ),
    "Docker Desktop": cpu(
        host=replace(host("docker", 6, 8 * GIB), kernel="6.10.14-linuxkit"),
        limits=limits(None, 1_048_576, 64 * MIB),
        net=net(mtu(interface("eth0", "172.17.0.2/16"), 65535)),
        names=names("172.17.0.2"),
        transport=sockets("eth0", "172.17.0.2"),
    ),
    "a login node of Slurm with many processes": cpu(
        host=host(num_cpus=32, memory=256 * GIB),
        limits=replace(limits(64 * 1024, 1024, 128 * GIB), num_tasks=4000, max_tasks=12_000),
        net=net(interface("eno1", "10.1.0.2/16"), mtu(interface("ib0", "10.2.0.2/16"), 2044)),
        names=names("10.1.0.2"),
        transport=sockets("ib0", "10.2.0.2", ("eno1", "10.1.0.2")),
        rdma=rdma(("mlx5_0", "ACTIVE", "LinkUp", "InfiniBand")),
    ),
    "a machine with a VPN and IPv6 only": cpu(
        host=host(),
        net=net(
            interface("enp3s0", "2001:db8:1::7/64"),
            replace(mtu(interface("tun0", "fd00:8::2/64"), 1420), kind="tunnel"),
            routes=(Route(destination="::/0", interface="enp3s0", gateway="fe80::1", metric=100),),
        ),
        transport=sockets("enp3s0", "2001:db8:1::7"),
        names=names("2001:db8:1::7"),
    ),
    "a container of LXC": cpu(
        host=host("lxc", 4, 8 * GIB),
        limits=limits(64 * 1024 * MIB, 1_048_576, 8 * GIB),
        net=net(replace(interface("eth0", "10.42.7.11/24"), kind="veth")),
        names=names("10.42.7.11"),
        transport=sockets("eth0", "10.42.7.11"),
        time=TimeFacts(is_synchronized=True),
    ),
    "a container with an interface of its own in the network (macvlan)": cpu(
        host=host("docker", 16, 64 * GIB),
        limits=limits(None, 65536, 16 * GIB),
        net=net(replace(interface("eth0", "192.168.40.9/24"), kind="other")),
        names=names("192.168.40.9"),
        transport=sockets("eth0", "192.168.40.9"),
    ),
    "a bond of two cards in a bridge of virtual machines": cpu(
        host=host(num_cpus=64, memory=512 * GIB),
        net=net(
            replace(interface("br0", "10.9.0.3/24"), kind="bridge"),
            replace(interface("bond0"), kind="bond"),
            replace(interface("eno1"), kind="ethernet"),
            replace(interface("eno2"), kind="ethernet"),
            replace(interface("virbr0", "192.168.122.1/24", up=False), kind="bridge"),
        ),
        names=names("10.9.0.3"),
        transport=sockets("br0", "10.9.0.3"),
    ),
    "an HGX A100 whose fabric manager runs, with a GPU that was reset": node(
        gpu=replace(
            gpus(8, "NVIDIA A100-SXM4-80GB"),
            gpus=tuple(
                replace(one, nvlinks=(True,) * 12, fabric_state="not_supported")
                for one in gpus(8, "NVIDIA A100-SXM4-80GB").gpus
            ),
            num_switches=6,
            has_fabric_manager=True,
            xids=(
                Xid(pci_bus_id="0000:01:00", code=79, age_s=600.0, text="NVRM: Xid"),
                Xid(pci_bus_id="0000:01:00", code=154, age_s=300.0, text="NVRM: Xid", action="None"),
                Xid(pci_bus_id="0000:c3:00.0", code=20009, age_s=60.0, text="Non-fatal, Link 28 RX Short Error Rate"),
            ),
        ),
        limits=limits(None, 65536),
    ),
    "a server with one route over two uplinks": cpu(
        net=net(
            ETH,
            interface("eth1", "10.1.0.1/24"),
            routes=tuple(
                Route(destination="0.0.0.0/0", interface=f"eth{i}", gateway=f"10.{i}.0.254", is_shared=True)
                for i in range(2)
            ),
        ),
        transport=sockets("eth0", "10.0.0.1"),
        names=names("10.0.0.1"),
    ),
    "a bond of LACP with both links": cpu(
        net=replace(
            net(replace(interface("bond0", "10.0.0.1/24"), kind="bond")),
            bonds=(
                Bond(
                    name="bond0",
                    mode="IEEE 802.3ad Dynamic link aggregation",
                    is_up=True,
                    aggregator=1,
                    links=tuple(BondLink(name=f"eno{i}", is_up=True, aggregator=1) for i in (1, 2)),
                ),
            ),
        ),
        transport=sockets("bond0", "10.0.0.1"),
        names=names("10.0.0.1"),
    ),
    "a node of a job of several, whose storage has a RoCE port without an address": node(
        launch=replace(LAUNCH, num_nodes=8, master_addr="10.0.0.1"),
        gpu=gpus(8),
        limits=limits(None, 65536),
        rdma=RdmaFacts(
            ports=tuple(
                RdmaPort(
                    device=f"mlx5_{i}",
                    port=1,
                    state="ACTIVE",
                    physical_state="LinkUp",
                    link_layer="Ethernet",
                    gids=(
                        "1 RoCE v2 fe80:0000:0000:0000:0ac0:ebff:fe00:0001",
                        *((f"3 RoCE v2 0000:0000:0000:0000:0000:ffff:0a00:000{i}",) if i else ()),
                    ),
                )
                for i in range(3)
            )
        ),
    ),
    "a firewall that trusts the network of the job": cpu(
        net=net(ETH, interface("wan0", "203.0.113.9/24")),
        transport=sockets("eth0", "10.0.0.1"),
        names=names("10.0.0.1"),
        launch=replace(LAUNCH, num_nodes=2, master_addr="10.0.0.1"),
        firewall=FirewallFacts(
            tool="firewalld",
            drops=(DropRule(text="reject", verdict="reject", chain="inet firewalld filter_INPUT", hooks=("input",)),),
            dropped_ports=((1, 65535),),
            views=(FilterView(interface="eth0"), FilterView(interface="", dropped_ports=((1, 65535),))),
        ),
    ),
}


@cases("name", MACHINES)
def test_a_healthy_machine_has_no_finding_above_information(name: str) -> None:
    report = judge([placed(MACHINES[name])], Settings(is_here=True))
    assert [(f.code, f.message) for f in report.findings if f.severity is not Severity.INFO] == []
    assert report.status is Status.HEALTHY


def test_there_are_twenty_kinds() -> None:
    assert len(MACHINES) >= 20


def test_the_same_machines_with_a_fault_are_not_healthy() -> None:
    full = replace(DISK, free_bytes=0)
    for name, facts in MACHINES.items():
        report = judge([placed(replace(facts, usage=UsageFacts(volumes=(full,))))], None)
        assert report.status is Status.FAULT, name
