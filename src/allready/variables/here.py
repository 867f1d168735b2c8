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

    def elsewhere(self) -> "Here":
        """Another machine with the same software, for what is written here and runs there."""
        return Here(versions=self.versions, nproc=self.nproc)

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
