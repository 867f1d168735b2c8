"""What is known of one node.  A collector fills each of these whole, or says why it cannot.

Units are in the names.  Absent values are None ("not known"), never 0.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from allready.model.fill import in_english
from allready.model.finding import Phrase


class LaunchFacts(Struct, frozen=True, kw_only=True):
    """The job as this node's flags and environment describe it (`sources`: field -> flag or variable)."""

    num_nodes: int
    node_rank: int
    nproc_per_node: int
    master_addr: str
    master_port: int
    job_id: str = "none"
    scheduler: str | None = None  # torchrun, slurm, openmpi, mpich, kubernetes, ...
    devices: tuple[str, ...] = ()  # explicit --devices, else empty
    backend: str | None = None
    framework: str = "torch"
    missing_script: str = ""  # the script or program that was asked for and does not exist on this node
    sources: dict[str, str] = {}


class HostFacts(Struct, frozen=True, kw_only=True):
    """The machine and its operating system."""

    hostname: str
    kernel: str
    os_name: str
    container: str | None = None  # docker, podman, kubernetes, apptainer, ...; None: no sign of one
    num_cpus: int | None = None  # usable by this process (affinity and cgroup quota), not installed
    memory_bytes: int | None = None
    boot_id: str | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None


class HostsLine(Struct, frozen=True, kw_only=True):
    """A line of /etc/hosts that gives a name an address."""

    line: int
    address: str


class NameFacts(Struct, frozen=True, kw_only=True):
    """What names mean on this node."""

    own_name: str
    own_addresses: tuple[str, ...]  # what the own host name resolves to here; () when it does not
    master_name: str
    master_addresses: tuple[str, ...]  # what MASTER_ADDR resolves to here; () when it does not
    own_error: str | None = None
    master_error: str | None = None  # why it does not resolve
    own_lines: tuple[HostsLine, ...] = ()  # of /etc/hosts
    master_lines: tuple[HostsLine, ...] = ()
    order: tuple[str, ...] = ()  # in which the resolver asks for hosts, by nsswitch.conf: files, dns, myhostname
    servers: tuple[str, ...] = ()  # of DNS, by resolv.conf
    search: tuple[str, ...] = ()  # domains that are tried behind a short name
    num_dots: int | None = None  # fewer dots than this make a name short; None: as usual, 1
    phrases: Mapping[str, tuple[Phrase, ...]] = {}  # what the errors say, as data


class Interface(Struct, frozen=True, kw_only=True):
    """One network interface."""

    name: str
    is_up: bool
    is_loopback: bool
    mtu_bytes: int
    addresses: tuple[str, ...] = ()  # CIDR, "10.0.0.1/24" or "fe80::1/64"; link-local without %zone
    speed_mbit_per_s: int | None = None
    kind: str = "ethernet"  # ethernet, infiniband, loopback, bridge, veth, vlan, bond, tunnel, wireless, other
    mac: str | None = None
    driver: str | None = None

    @property
    def bare_addresses(self) -> tuple[str, ...]:
        """Its addresses without prefix length: `10.0.0.1`."""
        return tuple(address.partition("/")[0] for address in self.addresses)


class Route(Struct, frozen=True, kw_only=True):
    """One row of the main routing table; destination in CIDR form, "0.0.0.0/0" is the default route."""

    destination: str
    interface: str
    gateway: str | None = None
    metric: int = 0
    is_shared: bool = False  # one way of several of one route, among which the kernel divides connections


class RoutingRule(Struct, frozen=True, kw_only=True):
    """A rule that chooses a routing table for some packets."""

    text: str  # as `ip rule` prints it
    source: str | None = None  # the network of the addresses that packets come from
    is_marked: bool = False  # for packets that a packet filter or a program marks


class BondLink(Struct, frozen=True, kw_only=True):
    """One interface of a bond."""

    name: str
    is_up: bool  # by the bond's own monitor
    aggregator: int | None = None  # of LACP: links of other aggregators than the active one carry nothing


class Bond(Struct, frozen=True, kw_only=True):
    """A bond of the kernel's bonding driver."""

    name: str
    mode: str  # in the driver's words: "fault-tolerance (active-backup)", "IEEE 802.3ad Dynamic link aggregation"
    is_up: bool
    links: tuple[BondLink, ...] = ()
    active: str | None = None  # of the mode active-backup: the link that carries everything
    aggregator: int | None = None  # of LACP: the active one; None: only root may read it


class NetFacts(Struct, frozen=True, kw_only=True):
    """Interfaces and routes."""

    interfaces: tuple[Interface, ...]
    routes: tuple[Route, ...] = ()
    local_port_range: tuple[int, int] | None = None  # net.ipv4.ip_local_port_range
    tcp_mtu_probing: int | None = None
    tcp_retries2: int | None = None
    rp_filter: dict[str, int] = {}  # by interface what counts, the greater of its own and of "all": 1 is strict
    somaxconn: int | None = None  # most connections that wait at one port to be accepted
    reserved_ports: tuple[tuple[int, int], ...] = ()  # of `local_port_range`, not given to outgoing connections
    bonds: tuple[Bond, ...] = ()
    routing_rules: tuple[RoutingRule, ...] = ()  # beside the kernel's own: `routes` is not the only table then

    def interface(self, name: str) -> Interface | None:
        """The interface called `name`, if there is one."""
        return next((i for i in self.interfaces if i.name == name), None)


class ChoiceStep(StrEnum):
    """Which step of a library's search for interfaces gave its choice; `InterfaceChoice.names` is of some of them."""

    UNSPECIFIED = "unspecified"  # by an older version
    NAMED = "named"  # by its variable
    IB = "ib"  # ib* comes first
    COMM_ID = "comm_id"  # in the subnet of NCCL_COMM_ID
    ALL_BUT = "all_but"  # all but `names`
    ONLY = "only"  # nothing but `names` is left
    NONE = "none"
    HOST_NAME = "host_name"  # resolves to it
    NAME_UNRESOLVED = "name_unresolved"  # the host name does not resolve: loopback
    NAME_OF_ANOTHER = "name_of_another"  # it resolves to no address of this node: loopback


class ChoiceFault(StrEnum):
    """Why a library will fail with what it chose; `ChoiceError.name` is of most of them."""

    NO_INTERFACE = "no_interface"  # that is up and has an address
    NO_MATCH = "no_match"  # with the pattern
    MATCH_IS_DOWN = "match_is_down"  # `name`, or has no address
    NOT_IN_SUBNET = "not_in_subnet"  # of NCCL_COMM_ID
    NO_LOOPBACK = "no_loopback"  # the last resort cannot be bound
    NO_ADDRESS = "no_address"
    EMPTY_ENTRY = "empty_entry"  # one comma too many
    NCCL_SYNTAX = "nccl_syntax"  # which Gloo does not know
    BLANKS = "blanks"  # which belong to the name
    NO_SUCH_NAME = "no_such_name"


class ChoiceError(Struct, frozen=True, kw_only=True):
    """Why a library will fail with what it chose, or did not find."""

    fault: ChoiceFault
    name: str = ""  # of the interface, or the pattern, NCCL_COMM_ID or address that is meant
    pattern: str = ""  # that `name` matches
    family: str = ""  # that NCCL_SOCKET_FAMILY asks for


class InterfaceChoice(Struct, frozen=True, kw_only=True):
    """What one library (NCCL or Gloo) will use for its own sockets on this node, and why."""

    variable: str  # NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME
    pattern: str | None  # the variable's value; None when it is not set
    interfaces: tuple[str, ...]  # in order; the first one is used for set-up (NCCL's bootstrap)
    addresses: tuple[str, ...]  # one per interface, without prefix length
    step: ChoiceStep = ChoiceStep.UNSPECIFIED
    names: tuple[str, ...] = ()  # patterns of interfaces, of ALL_BUT and ONLY
    is_set_up_by_comm_id: bool = False  # the bootstrap takes the subnet of NCCL_COMM_ID, and `step` is of the data
    failure: ChoiceError | None = None  # the library will fail; why


class TransportFacts(Struct, frozen=True, kw_only=True):
    """The interfaces and RDMA ports that NCCL and Gloo will really use on this node."""

    nccl: InterfaceChoice
    gloo: InterfaceChoice
    hcas: tuple[str, ...] | None = None  # RDMA ports that NCCL takes by itself, as mlx5_0:1; None: not known
    hcas_by: str = ""  # the variable and value that chose them; empty where none did


class RdmaPort(Struct, frozen=True, kw_only=True):
    """One port of an InfiniBand or RoCE device, from /sys/class/infiniband."""

    device: str
    port: int
    state: str  # ACTIVE, DOWN, INIT, ARMED
    physical_state: str
    link_layer: str  # InfiniBand or Ethernet
    rate_gbit_per_s: float | None = None
    num_lanes: int | None = None
    firmware: str | None = None  # of the device
    provider: str | None = None  # its driver: mlx5_core, efa, irdma, bnxt_re, hfi1, ...
    netdev: str | None = None
    gids: tuple[str, ...] = ()  # "INDEX TYPE GID" of the non-zero ones
    bond: str | None = None  # the bond of interfaces whose card this is
    bonded: dict[str, str] = {}  # the bond's interfaces and whether each is up or down
    counts: dict[str, int] = {}  # errors counted so far by kind, without zeros
    growth: dict[str, int] = {}  # of them, those of the last `RdmaFacts.watched_s` seconds

    @property
    def gid_types(self) -> dict[int, tuple[str, str]]:
        """Index -> (type, GID) of the entries of the GID table that are not zero."""
        rows = [gid.split(" ") for gid in self.gids]
        return {int(row[0]): (" ".join(row[1:-1]), row[-1]) for row in rows if len(row) > 2 and row[0].isdecimal()}

    @property
    def roce_v2_index(self) -> int | None:
        """The index that NCCL has to use with RoCE: version 2 with an IPv4 address, else version 2 with another one."""
        fitting = {i: gid for i, (kind, gid) in self.gid_types.items() if kind == "RoCE v2"}
        ipv4 = [i for i, gid in fitting.items() if gid.startswith("0000:0000:0000:0000:0000:ffff:")]
        return min(ipv4 or list(fitting), default=None)


class RdmaFacts(Struct, frozen=True, kw_only=True):
    """InfiniBand and RoCE ports; empty when the machine has none."""

    ports: tuple[RdmaPort, ...]
    # None: there are no ports, or it is not known.
    has_library: bool | None = None  # libibverbs, which NCCL loads to use them
    has_cm_library: bool | None = None  # librdmacm, for perftest and other programs; NCCL does without
    has_net_plugin: bool | None = None  # libnccl-net.so, by which NCCL uses EFA; None: there is no EFA, too
    has_device_files: bool | None = None  # /dev/infiniband/uverbs*; a container has them only if they are passed in
    watched_s: float | None = None  # for how long the counters of errors were watched
    others: tuple[str, ...] = ()  # devices of fabrics beside InfiniBand's class: cxi0 of Slingshot


class GpuProcess(Struct, frozen=True, kw_only=True):
    """A process that holds memory of a GPU."""

    pid: int
    user: str | None
    command: str | None
    used_bytes: int | None
    is_zombie: bool = False  # it has ended, but a thread of it has not
    is_orphan: bool = False  # init is its parent now, and who led its session has ended: no service, which leads one


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU as NVML sees it (before CUDA_VISIBLE_DEVICES)."""

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    memory_total_bytes: int
    memory_used_bytes: int
    processes: tuple[GpuProcess, ...] = ()
    # None: this GPU or driver does not tell.
    num_uncorrected: int | None = None  # memory errors that ECC could not correct, since the driver was loaded
    is_remap_pending: bool | None = None  # a row of memory is to be replaced at the next reset
    has_remap_failed: bool | None = None  # there is no spare row left for it
    is_retirement_pending: bool | None = None  # before Ampere: a page of memory is given up at the next start
    compute_mode: str | None = None  # default, exclusive_thread, prohibited, exclusive_process
    slowdowns: tuple[str, ...] = ()  # why its clocks are lowered now, other than by idleness and the power cap
    pcie_width: int | None = None
    max_pcie_width: int | None = None  # of GPU and machine together
    max_pcie_generation: int | None = None  # of GPU and machine together
    own_pcie_generation: int | None = None  # the most that the GPU itself can do
    nvlink_errors: dict[str, int] = {}  # of all links together since the driver was loaded, by kind, without zeros
    is_persistent: bool | None = None  # the driver stays loaded while no process uses the GPU
    nvlinks: tuple[bool, ...] = ()  # of each NVLink that it has: whether it is up
    is_mig: bool | None = None
    num_mig: int | None = None  # instances
    fabric_state: str | None = None  # not_supported, not_started, in_progress, completed, failed


class P2pStatus(StrEnum):
    """Whether two GPUs read each other's memory, or why they do not; NVML's names, in its order."""

    OK = "ok"
    CHIPSET = "chipset"
    GPU = "gpu"
    TOPOLOGY = "topology"
    DISABLED = "disabled"  # by the driver's settings: NVML's DISABLED_BY_REGKEY
    NOT_SUPPORTED = "not_supported"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "P2pStatus":
        """What another version of this program or of NVML says."""
        del value
        return cls.UNKNOWN


class GpuPair(Struct, frozen=True, kw_only=True):
    """Two GPUs of one machine.

    level: what is between them, as in `nvidia-smi topo -m`: PIX (one switch),
    PXB (several), PHB (a host bridge), NODE (host bridges of one NUMA node), SYS (NUMA nodes); "" on one board.
    num_nvlinks: NVLinks over which they reach each other, also through switches: NV18 of that command; 0: by PCIe.
    """

    a: int
    b: int
    p2p: P2pStatus | None = None
    level: str | None = None
    num_nvlinks: int = 0


class Xid(Struct, frozen=True, kw_only=True):
    """An error of a GPU in the kernel log, or one of an NVSwitch (SXid): their codes have five digits."""

    pci_bus_id: str
    code: int
    age_s: float
    text: str
    is_fatal: bool = False  # it says so
    action: str = ""  # Xid 154: what the driver says that the GPU needs now; "None" where it needs nothing


class GpuFacts(Struct, frozen=True, kw_only=True):
    """The GPUs of the node, the driver, and which of them this job may use."""

    gpus: tuple[Gpu, ...]
    driver_version: str | None = None  # None: no driver, therefore no GPUs
    cuda_version: str | None = None  # newest CUDA that the driver supports
    visible: tuple[int, ...] = ()  # NVML indices left by CUDA_VISIBLE_DEVICES, in its order
    visible_devices: str | None = None  # CUDA_VISIBLE_DEVICES itself; None when not set
    lost: dict[int, str] = {}  # index -> NVML's error of those that do not answer; they are not among `gpus`
    xids: tuple[Xid, ...] = ()  # since the driver was loaded, as far as the kernel log may be read
    pairs: tuple[GpuPair, ...] = ()  # a < b
    num_switches: int = 0  # NVSwitches of this machine
    has_fabric_manager: bool | None = None  # whether it runs here; None: there are no switches
    num_amd: int = 0  # GPUs of AMD that the kernel knows; NVML tells nothing of them


class PciGpu(Struct, frozen=True, kw_only=True):
    """Where a GPU sits on the PCI bus."""

    address: str  # 0000:3b:00.0
    numa_node: int | None = None  # None: the machine has one node, or does not tell
    cpus: str = ""  # those beside it: 0-31,64-95
    bridges: tuple[str, ...] = ()  # addresses of those above it, the topmost first


class BusFacts(Struct, frozen=True, kw_only=True):
    """The PCI bus as far as it matters for copies between GPUs and network cards."""

    gpus: tuple[PciGpu, ...] = ()
    redirecting: tuple[str, ...] = ()  # bridges above GPUs that send what is for a neighbour up to the root (ACS)
    num_unread: int = 0  # bridges above GPUs whose ACS only root may read
    iommu: str | None = None  # "off", "passthrough", "translated": what most devices have
    is_virtual: bool | None = None  # a guest of a hypervisor
    usable_cpus: str = ""  # those of this process


class SoftwareFacts(Struct, frozen=True, kw_only=True):
    """Versions of what the job will import, by name: python, torch, torch-cuda, nccl, jax, jaxlib, numpy, allready.

    A name that is not installed is absent.
    """

    versions: dict[str, str]


class ChildEnd(Struct, frozen=True, kw_only=True):
    """How a step in a process of its own ended.

    outcome: the step's own word where it succeeded; "failed" (an exception: `error`); "died" (`signal` or `exit_code`);
    "silent" (no end within `limit_s`).
    """

    outcome: str
    duration_s: float = 0.0
    limit_s: float = 0.0
    error: str | None = None
    signal: str | None = None  # SIGSEGV
    exit_code: int | None = None
    cpu_s: float | None = None  # silent: CPU time used so far
    recent_cpu_s: float | None = None  # silent: of it, during the last second
    state: str | None = None  # silent: as in ProcessState
    wchan: str | None = None  # silent: where in the kernel its main thread sleeps
    stack: tuple[str, ...] = ()  # where it stood, innermost first: 'File "x.py", line 3 in f'


class Devices(ChildEnd, frozen=True, kw_only=True):
    """What a module answered that was asked for its devices; outcome "answered"."""

    platform: str = ""  # cuda, rocm, gpu (JAX's word for both), tpu, cpu
    names: tuple[str, ...] = ()  # of the devices, in its order
    peers_off: tuple[tuple[int, int], ...] | None = None  # pairs without P2P by torch; None: not asked


class Import(ChildEnd, frozen=True, kw_only=True):
    """What became of importing one module; outcome "imported" or "absent" (not installed)."""

    module: str
    versions: dict[str, str] = {}  # torch, torch-cuda, nccl-built, nccl-loaded, jaxlib, jax-cuda12-plugin, ...
    libraries: tuple[str, ...] = ()  # paths of the libnccl and librccl that it loaded
    backends: tuple[str, ...] = ()  # torch: of torch.distributed
    devices: Devices | None = None  # None: not asked for


class ImportFacts(Struct, frozen=True, kw_only=True):
    """What importing the frameworks came to, each in a process of its own."""

    modules: tuple[Import, ...]


class StackLimit(Struct, frozen=True, kw_only=True):
    """How large a stack may grow.  None: unlimited."""

    soft_bytes: int | None
    hard_bytes: int | None


class CoreDumps(Struct, frozen=True, kw_only=True):
    """What becomes of the memory of a process that crashes.

    place: "nowhere", "program" or "socket" (`target` gets it), "folder" (`target`), "working_folder" (of the process).
    """

    pattern: str  # kernel.core_pattern
    limit_bytes: int | None  # None: unlimited
    place: str
    target: str = ""


class LimitFacts(Struct, frozen=True, kw_only=True):
    """Limits of this process and sizes that containers are known to cut.  None: unlimited or not known, by field."""

    memlock_bytes: int | None  # None: unlimited
    nofile_soft: int | None  # None: unlimited
    nofile_hard: int | None
    shm_total_bytes: int | None  # None: /dev/shm is missing
    shm_free_bytes: int | None
    num_tasks: int | None = None  # processes and threads of the control group that is fullest, and how many it may have
    max_tasks: int | None = None
    ptrace_scope: int | None = None  # of Yama; None: not there
    can_ptrace: bool | None = None  # whether this process has CAP_SYS_PTRACE
    stack: StackLimit | None = None
    cores: CoreDumps | None = None


class EnvFacts(Struct, frozen=True, kw_only=True):
    """Variables that PyTorch, NCCL, Gloo, CUDA, JAX, XLA and OpenMP read; secrets are never among them."""

    variables: dict[str, str]


class ClockFacts(Struct, frozen=True, kw_only=True):
    """This node's wall clock minus node 0's, by round trips over the store connection."""

    offset_s: float
    uncertainty_s: float


class TimeFacts(Struct, frozen=True, kw_only=True):
    """Who keeps this node's clock."""

    is_synchronized: bool  # by the kernel's word
    services: tuple[str, ...] = ()  # programs for it that run here


class ScriptFacts(Struct, frozen=True, kw_only=True):
    """The training script that was named after `--`.

    `spawns`: "LINE: CALL" of calls that start further processes as ranks; empty where it reads RANK or LOCAL_RANK too.
    """

    path: str
    sha256: str
    size_bytes: int
    spawns: tuple[str, ...] = ()


TCP = frozenset({"tcp", "6", "all", "0"})
"""As packet filters call it, by name or number, alone or with all others."""


class DropRule(Struct, frozen=True, kw_only=True):
    """A rule of a node's packet filter, or the policy of a chain, that drops or rejects packets.

    Its conditions: empty ones do not narrow it.  Addresses and ports are those of the packet, as the filter sees it.
    """

    text: str  # as its tool prints it, after the chain that it stands in: evidence
    verdict: str  # drop or reject
    chain: str = ""  # "inet filter input" of nft, "INPUT" of iptables
    hooks: tuple[str, ...] = ()  # where the kernel comes to it from: input, output, prerouting, postrouting, ingress
    handle: int | None = None  # nft's number of the rule in its chain
    is_policy: bool = False  # what happens to everything that no rule of the chain decides
    protocols: tuple[str, ...] = ()  # any of tcp, udp, ...
    interfaces: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()  # addresses and networks
    destinations: tuple[str, ...] = ()
    source_ports: tuple[tuple[int, int], ...] = ()  # inclusive ranges
    ports: tuple[tuple[int, int], ...] = ()
    is_conditional: bool = False  # it has further conditions: a state, a rate, a length, what is not of an address

    @property
    def is_outbound(self) -> bool:
        """Whether it concerns packets that leave."""
        return any(hook in {"output", "postrouting"} for hook in self.hooks)

    @property
    def is_of_tcp(self) -> bool:
        """Whether TCP is among its protocols."""
        return not self.protocols or not TCP.isdisjoint(self.protocols)

    @property
    def is_by_address_alone(self) -> bool:
        """Whether it drops everything of the addresses that it names: then nothing of a connection gets through."""
        return not (self.ports or self.source_ports or self.is_conditional) and self.is_of_tcp


class FilterView(Struct, frozen=True, kw_only=True):
    """What the packet filter does to connections of one peer, or by one interface that its rules name."""

    peer: str | None = None  # an address
    interface: str | None = None
    dropped_ports: tuple[tuple[int, int], ...] = ()  # as those of FirewallFacts
    out_dropped_ports: tuple[tuple[int, int], ...] = ()


class FirewallFacts(Struct, frozen=True, kw_only=True):
    """Local packet filter, as far as this user may read it."""

    tool: str | None  # nft, iptables, firewalld, ufw; None: none found active
    drops: tuple[DropRule, ...] = ()
    dropped_ports: tuple[tuple[int, int], ...] = ()  # inclusive TCP destination-port ranges dropped on input
    out_dropped_ports: tuple[tuple[int, int], ...] = ()  # as dropped_ports, of connections that begin here
    views: tuple[FilterView, ...] = ()  # those above take a rule for one interface as one for all of them


class PortHolder(Struct, frozen=True, kw_only=True):
    """Who listens on a local TCP port."""

    pid: int | None  # None: belongs to a user whose processes we may not see
    command: str | None = None
    user: str | None = None
    started: str | None = None  # ISO-8601


class MasterPortFacts(Struct, frozen=True, kw_only=True):
    """Node 0 only: whether it could open the master port, and if not, who holds it and what answers there."""

    port: int
    opened: bool
    error: str | None = None
    service: str | None = None  # torch-store, allready, http, ssh, grpc, tls, silent, unknown
    banner: str | None = None
    holder: PortHolder | None = None


class Volume(Struct, frozen=True, kw_only=True):
    """The file system behind a folder that jobs write to.  Inodes are None where it does not count them."""

    path: str
    total_bytes: int
    free_bytes: int  # for users
    num_inodes: int | None = None
    num_free_inodes: int | None = None
    is_read_only: bool = False


class Listener(Struct, frozen=True, kw_only=True):
    """A TCP port of this machine on which something listens."""

    port: int
    holder: PortHolder


class Leftover(Struct, frozen=True, kw_only=True):
    """A rank whose launcher is gone: init is its parent now.  `rank`: as its RANK says."""

    pid: int
    rank: str | None
    command: str | None = None
    user: str | None = None
    started: str | None = None  # ISO-8601
    ports: tuple[int, ...] = ()  # on which it listens


class Loader(Struct, frozen=True, kw_only=True):
    """Processes by which a running program loads its data: the workers of torch's DataLoader."""

    pid: int  # of the program
    num_workers: int
    cpus: str  # those that its workers may use: 0-31,64-95
    command: str | None = None
    user: str | None = None


class BuildLock(Struct, frozen=True, kw_only=True):
    """A lock of torch's builds of C++ extensions."""

    path: str
    age_s: float
    is_held: bool  # by a process of this machine, as far as they may be seen


class KernelLine(Struct, frozen=True, kw_only=True):
    """One record of the kernel log."""

    age_s: float
    text: str


class UsageFacts(Struct, frozen=True, kw_only=True):
    """What is used up or left over on this machine.  None: not known, or there is none."""

    volumes: tuple[Volume, ...] = ()
    silent_folders: tuple[str, ...] = ()  # whose file system gave no answer in a second
    num_tracked: int | None = None  # connections that the packet filter tracks
    max_tracked: int | None = None
    memory_limit_bytes: int | None = None  # of the tightest control group
    memory_used_bytes: int | None = None  # in that group, without what the kernel can drop at once
    asked_ports: tuple[int, int] | None = None
    asked_peers: tuple[str, ...] = ()  # addresses of machines that the job will run on, too
    listeners: tuple[Listener, ...] = ()  # within `asked_ports`
    free_port: int | None = None  # the lowest free one of `asked_ports`, or the next above them
    leftovers: tuple[Leftover, ...] = ()
    locks: tuple[BuildLock, ...] = ()
    loaders: tuple[Loader, ...] = ()
    num_zombies: int | None = None  # processes that have ended and were not reaped
    zombie_parent: PortHolder | None = None  # who should reap most of them
    num_parents_zombies: int = 0  # how many of them are its own


class LossReason(StrEnum):
    """How a connection between node 0 and another node ended, as one of them met it."""

    SILENT = "silent"  # no heartbeat for `silent_s`, and the connection was not closed
    ONE_WAY = "one_way"  # the same, but the peer's packets arrive: it acknowledges none of ours
    AGENT_SILENT = "agent_silent"  # the same, but the peer's kernel acknowledges ours: its process is silent
    PEER_CLOSED = "peer_closed"  # the other end closed it
    CLOSED = "closed"  # something else ended it (`text`)
    BROKEN = "broken"  # with an error of the network (`text`)
    LEFT = "left"  # the peer gave a reason (`text`)


class Loss(Struct, frozen=True, kw_only=True):
    """A connection between node 0 and another node that ended before it should have.

    `pause_s`: this end itself did not run for so long shortly before, longer than the other waits for a sign of life.
    """

    reason: LossReason
    text: str = ""
    silent_s: float | None = None
    pause_s: float | None = None
    num_sent: int = 0  # segments with data of this end that the other acknowledged, with those sent again
    num_resent: int = 0  # of these again, because they or their acknowledgement were lost on the way

    @property
    def is_silent(self) -> bool:
        """Whether nothing ended it: a stopped process, a lost machine and a broken path are alike here."""
        return self.reason in {LossReason.SILENT, LossReason.ONE_WAY, LossReason.AGENT_SILENT}

    @property
    def phrase(self) -> Phrase:
        """The same for every language; what the other end gave as its reason stands as it is."""
        values = {"text": self.text, "seconds": "" if self.silent_s is None else f"{self.silent_s:.0f}"}
        ended = Phrase(_LOST.get(self.reason, "{text}" if self.text else "the connection was closed"), values)
        if self.pause_s is None:
            return ended
        return Phrase(
            "this node's own agent did not run for {pause} s; then {loss}",
            {"pause": f"{self.pause_s:.0f}", "loss": ended},
        )

    def __str__(self) -> str:
        """In English, for logs."""
        return in_english(self.phrase)


_LOST = {
    LossReason.SILENT: "no heartbeat for {seconds} s",
    LossReason.ONE_WAY: "no heartbeat for {seconds} s; its packets arrive here, and it acknowledges none of ours",
    LossReason.AGENT_SILENT: "no heartbeat for {seconds} s; its machine answers, its agent does not",
    LossReason.BROKEN: "the connection broke: {text}",
    LossReason.PEER_CLOSED: "the other side closed the connection",
}


class MasterContactFacts(Struct, frozen=True, kw_only=True):
    """Nodes other than node 0: how far this node got towards the master's port.

    outcome, one of:
        joined          in the roll
        unresolved      the name does not resolve
        loopback        the name resolves to a loopback address here, and node 0 is another machine
        no_route        the kernel has no route, or the next hop does not answer (EHOSTUNREACH, ENETUNREACH)
        refused         the host answers, no process listens on the port, or a filter rejects (`rejected_by`)
        silent          no answer at all: filtered, or the host is down
        family_mismatch the name gives only IPv6 and this node has only IPv4, or the reverse
        wrong_service   something else speaks there (`service`)
        stale_store     another torch job's store answers there
        other_job       another allready answers there: of another job id, or whose job runs already (`holder`)
        rejected        node 0 refused this node (`detail` says why)
        lost            joined, then the connection to node 0 broke
    """

    outcome: str
    master_addr: str
    master_port: int
    addresses: tuple[str, ...] = ()
    address: str | None = None  # the one tried last
    detail: str = ""
    phrases: Mapping[str, tuple[Phrase, ...]] = {}  # what `detail` says, as data
    error: str | None = None  # the connection's errno by name, ECONNREFUSED, where the kernel gave one
    loss: Loss | None = None  # lost: how
    service: str | None = None
    attempts: int = 0
    num_broken: int = 0  # attempts whose TCP connection was made and broke before node 0's answer was here
    waited_s: float = 0.0
    # Whether node 0 answered a UDP datagram although TCP did not connect; None: not tried.
    heard_by_datagram: bool | None = None
    rejected_by: str | None = None  # refused: the address whose ICMP message says so, as only a packet filter does
    holder: PortHolder | None = None  # other_job: the agent at node 0's port, as it describes itself
    local_holder: PortHolder | None = None  # refused by this machine: who listens on nearby ports
    # refused: (port, service) of what answers on nearby ports of that host; None: not tried.
    nearby: tuple[tuple[int, str], ...] | None = None
