"""What explaining a value and computing a preset need of one machine; all of it may be missing."""

from collections.abc import Mapping

from msgspec import Struct

from allready.model import GpuFacts, NetFacts, RdmaFacts, RdmaPort


class Here(Struct, frozen=True, kw_only=True):
    """One machine.  None: not known; a machine without RDMA devices or GPUs has facts that are empty."""

    net: NetFacts | None = None
    rdma: RdmaFacts | None = None
    gpu: GpuFacts | None = None
    versions: Mapping[str, str] = {}  # as in SoftwareFacts
    num_cpus: int | None = None  # usable by the job
    shm_bytes: int | None = None
    nproc: int | None = None  # processes per node; None: one per GPU
    interface: str | None = None  # towards the peers
    peers: tuple[str, ...] = ()
    in_container: bool = False

    @property
    def num_gpus(self) -> int:
        """GPUs that a job may use here; 0 when there is none or it is not known."""
        if self.gpu is None:
            return 0
        return len(self.gpu.visible) or len(self.gpu.gpus)

    @property
    def processes(self) -> int:
        """Processes that a job has here."""
        return self.nproc or self.num_gpus or 1

    def active(self, link_layer: str = "") -> tuple[RdmaPort, ...]:
        """RDMA ports in use, of one kind or of any."""
        ports = self.rdma.ports if self.rdma else ()
        return tuple(p for p in ports if p.state == "ACTIVE" and link_layer in {"", p.link_layer})


def gid_types(port: RdmaPort) -> dict[int, tuple[str, str]]:
    """Index -> (type, GID) of the entries of a port's table that are not zero."""
    rows = [gid.split(" ") for gid in port.gids]
    return {int(row[0]): (" ".join(row[1:-1]), row[-1]) for row in rows if len(row) > 2 and row[0].isdecimal()}


def roce_v2_index(port: RdmaPort) -> int | None:
    """The index that NCCL has to use with RoCE: version 2 with an IPv4 address, else version 2 with another one."""
    fitting = {i: gid for i, (kind, gid) in gid_types(port).items() if kind == "RoCE v2"}
    ipv4 = [i for i, gid in fitting.items() if gid.startswith("0000:0000:0000:0000:0000:ffff:")]
    return min(ipv4 or list(fitting), default=None)
