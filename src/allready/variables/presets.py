"""Settings for one purpose, computed for one machine, each with its reason.

A preset never has a variable that the versions here do not read, and leaves out what is right by itself.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from allready import units
from allready.errors import UsageError
from allready.model import RdmaPort
from allready.names import BUFFER_SIZE_VARIABLES
from allready.variables import table
from allready.variables.here import Here
from allready.variables.versions import Standing, found_of, is_before, nccl_backend, standing

LOOPBACK = "lo"
FAST_ETHERNET_MBIT = 100_000
MAX_WORKERS = 8
_ACCEPTED = {Standing.READ, Standing.DEPRECATED}


class PresetLine(Struct, frozen=True, kw_only=True):
    """One setting.  reason: `env.why_REASON` among the texts, with `values` for its placeholders."""

    name: str
    value: str
    reason: str
    values: Mapping[str, object] = {}


class PresetNote(Struct, frozen=True, kw_only=True):
    """What the preset leaves alone, or what else there is to do: `env.note_KEY` among the texts."""

    key: str
    values: Mapping[str, object] = {}


class Preset(Struct, frozen=True, kw_only=True):
    """Variables, what to give to torch's DataLoader, and notes."""

    name: str
    lines: tuple[PresetLine, ...]
    loader: tuple[PresetLine, ...] = ()
    notes: tuple[PresetNote, ...] = ()

    @property
    def values(self) -> dict[str, str]:
        """Variables and their values, for a process that is started with them."""
        return {line.name: line.value for line in self.lines}


def preset(name: str, here: Here) -> Preset:
    """The settings called `name` for this machine.

    Raises:
        UsageError: no such preset, or the machine lacks what it is for.
    """
    if name not in _MAKERS:
        raise UsageError("unknown preset {name!r}; valid: {names}", name=name, names=", ".join(NAMES))
    maker = _Maker(here)
    _MAKERS[name](maker, here)
    return maker.made(name)


class _Maker:
    """Collects lines, and drops those that nothing here would read."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._lines: dict[str, PresetLine] = {}
        self._loader: list[PresetLine] = []
        self._notes: dict[str, PresetNote] = {}

    def set(self, name: str, value: object, reason: str, **values: object) -> None:
        """Set a variable if these versions read it."""
        row = table.load()[name]
        backend = nccl_backend(self._here.versions, None)
        if standing(row, self._here.versions, backend) in _ACCEPTED:
            self._lines[name] = PresetLine(name=name, value=str(value), reason=reason, values=values)

    def set_first(self, names: tuple[str, ...], value: object, reason: str, **values: object) -> None:
        """Set the first of several names of one setting, the newest in front, that these versions read."""
        have = self._here.versions
        for name in names:
            if standing(table.load()[name], have, nccl_backend(have, None)) in _ACCEPTED:
                self.set(name, value, reason, **values)
                return

    def loader(self, argument: str, value: object, reason: str, **values: object) -> None:
        """An argument of torch's DataLoader."""
        self._loader.append(PresetLine(name=argument, value=str(value), reason=reason, values=values))

    def note(self, key: str, **values: object) -> None:
        self._notes[key] = PresetNote(key=key, values=values)

    def made(self, name: str) -> Preset:
        return Preset(
            name=name, lines=tuple(self._lines.values()), loader=tuple(self._loader), notes=tuple(self._notes.values())
        )


def _basic(maker: _Maker, here: Here) -> None:
    maker.set("NCCL_DEBUG", "WARN", "warn")
    _threads(maker, here)
    _recorder(maker, here, size=2000)
    _interface(maker, here)


def _threads(maker: _Maker, here: Here) -> None:
    """OMP_NUM_THREADS: a fair share, in place of torchrun's 1."""
    if here.num_cpus is None or here.processes < 2:
        return
    share = max(1, here.num_cpus // here.processes)
    maker.set("OMP_NUM_THREADS", share, "threads", cpus=here.num_cpus, processes=here.processes)


def _recorder(maker: _Maker, here: Here, *, size: int, always: bool = False) -> None:
    """The Flight Recorder: by default it is off before torch 2.9, and keeps 2000 operations since."""
    torch = found_of("torch", here.versions)
    if not torch:
        maker.note("no_torch")
        return
    if always or is_before(torch, (2, 9)):
        maker.set_first(BUFFER_SIZE_VARIABLES, size, "recorder", size=size)
    if always or is_before(torch, (2, 5)):
        maker.set_first(("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"), 1, "dump")


def _interface(maker: _Maker, here: Here) -> None:
    """The interface towards the peers, for NCCL's set-up and for Gloo."""
    peers = ", ".join(here.peers[:3])
    if here.interface is None:
        without = "peers_here" if peers else "no_peers"
        maker.note(without if here.net is not None else "of_machine", peers=peers)
        return
    maker.set("NCCL_SOCKET_IFNAME", f"={here.interface}", "nccl_interface", interface=here.interface, peers=peers)
    maker.set("GLOO_SOCKET_IFNAME", here.interface, "gloo_interface", interface=here.interface)


def _conservative(maker: _Maker, here: Here) -> None:
    _basic(maker, here)
    if here.gpu is None or here.num_gpus > 1:
        maker.set("NCCL_P2P_DISABLE", 1, "no_p2p")
    if here.rdma is None or here.rdma.ports:
        maker.set("NCCL_IB_DISABLE", 1, "no_ib")
    maker.set("NCCL_NVLS_ENABLE", 0, "no_nvls")
    maker.set("NCCL_CUMEM_ENABLE", 0, "no_cumem")
    maker.set("NCCL_ALGO", "Ring", "ring")
    maker.set("NCCL_PROTO", "Simple", "simple")
    maker.note("isolate")


def _ethernet(maker: _Maker, here: Here) -> None:
    _basic(maker, here)
    if here.rdma is None or here.rdma.ports:
        maker.set("NCCL_IB_DISABLE", 1, "tcp" if here.rdma else "tcp_anywhere")
    else:
        maker.note("no_rdma_here")
    card = here.net.interface(here.interface) if here.net and here.interface else None
    if card is not None and (card.speed_mbit_per_s or 0) >= FAST_ETHERNET_MBIT:
        speed = (card.speed_mbit_per_s or 0) // 1000
        maker.set("NCCL_SOCKET_NTHREADS", 4, "socket_threads", speed=speed)
        maker.set("NCCL_NSOCKS_PERTHREAD", 4, "sockets")


def _infiniband(maker: _Maker, here: Here) -> None:
    ports = _fastest(here, "InfiniBand", "infiniband")
    _basic(maker, here)
    _devices(maker, here, ports)
    maker.note("memlock")


def _roce(maker: _Maker, here: Here) -> None:
    ports = _fastest(here, "Ethernet", "roce")
    _basic(maker, here)
    _devices(maker, here, ports)
    nccl = found_of("nccl", here.versions)
    indices = {port.roce_v2_index for port in ports}
    index = indices.pop() if len(indices) == 1 else None
    if nccl and is_before(nccl, (2, 21)) and index is not None:
        maker.set("NCCL_IB_GID_INDEX", index, "gid_index", index=index)
    elif not nccl or is_before(nccl, (2, 21)):
        maker.note("gid_index_differs")
    else:
        maker.note("gid_index_automatic")
    maker.note("traffic_class")
    maker.note("memlock")


def _fastest(here: Here, link_layer: str, name: str) -> tuple[RdmaPort, ...]:
    """The ports in use without slower ones, which are for storage or management; () for a machine that is not known.

    Raises:
        UsageError: there is none.
    """
    if here.rdma is None:
        return ()
    ports = here.active(link_layer)
    if not ports:
        kind = "RoCE" if link_layer == "Ethernet" else link_layer
        raise UsageError("preset {name}: no {kind} port is ACTIVE here (/sys/class/infiniband)", name=name, kind=kind)
    best = max(p.rate_gbit_per_s or 0 for p in ports)
    return tuple(p for p in ports if (p.rate_gbit_per_s or 0) >= best / 2)


def _devices(maker: _Maker, here: Here, ports: tuple[RdmaPort, ...]) -> None:
    names = [f"{p.device}:{p.port}" for p in ports]
    if here.rdma is not None and len(ports) < len(here.rdma.ports):
        maker.set("NCCL_IB_HCA", "=" + ",".join(names), "hcas", count=len(names))
    elif ports:
        maker.note("all_hcas", count=len(names))
    maker.set("NCCL_NET", "IB", "net_ib")


def _single_node(maker: _Maker, here: Here) -> None:
    maker.set("NCCL_DEBUG", "WARN", "warn")
    maker.set("NCCL_SOCKET_IFNAME", LOOPBACK, "loopback")
    maker.set("GLOO_SOCKET_IFNAME", LOOPBACK, "loopback")
    _threads(maker, here)
    _recorder(maker, here, size=2000)
    maker.note("standalone")


def _container(maker: _Maker, here: Here) -> None:
    _basic(maker, here)
    maker.set("NVIDIA_DRIVER_CAPABILITIES", "compute,utility", "capabilities")
    maker.set("PYTHONUNBUFFERED", 1, "unbuffered")
    if here.in_container and here.shm_bytes is not None and here.shm_bytes < units.GIB and here.processes > 1:
        maker.note("shm_small", size=units.size(here.shm_bytes))
    maker.note("docker_run")


def _debug_start(maker: _Maker, here: Here) -> None:
    maker.set("NCCL_DEBUG", "INFO", "info")
    maker.set("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV,NET,GRAPH", "start_subsystems")
    maker.set("NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p.log", "log_file")  # noqa: S108 - a proposal to people
    maker.set("TORCH_CPP_LOG_LEVEL", "INFO", "torch_info")
    maker.set("TORCH_DISTRIBUTED_DEBUG", "INFO", "distributed_info")
    _interface(maker, here)
    maker.note("not_for_production")


def _debug_hang(maker: _Maker, here: Here) -> None:
    maker.set("NCCL_DEBUG", "WARN", "warn")
    _recorder(maker, here, size=20000, always=True)
    names = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    if found_of("torch", here.versions):
        maker.set_first(names, "/tmp/flight_recorder_rank_", "dump_file")  # noqa: S108
    maker.set("TORCH_NCCL_DESYNC_DEBUG", 1, "desync")
    maker.set("PYTHONFAULTHANDLER", 1, "faulthandler")
    maker.note("ras")
    maker.note("not_for_production")


def _gpu_cache(maker: _Maker, here: Here) -> None:
    _basic(maker, here)
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    maker.set_first(names, "expandable_segments:True", "segments")
    maker.loader("num_workers", 0, "cached_workers")
    maker.loader("pin_memory", False, "cached_pin")
    free = _free_gpu_bytes(here)
    if free is not None:
        maker.note("cache_budget", size=units.size(free // 2), free=units.size(free))
    else:
        maker.note("cache_budget_unknown")


def _free_gpu_bytes(here: Here) -> int | None:
    """Free memory of the fullest GPU that the job may use."""
    if here.gpu is None or not here.gpu.gpus:
        return None
    usable = [g for g in here.gpu.gpus if g.index in here.gpu.visible] or list(here.gpu.gpus)
    return min(max(0, g.memory_total_bytes - g.memory_used_bytes) for g in usable)


def _prefetch(maker: _Maker, here: Here) -> None:
    _basic(maker, here)
    workers = 0
    if here.num_cpus is None:
        maker.note("workers_unknown", most=MAX_WORKERS)
        maker.loader("prefetch_factor", 4, "prefetch_factor_each")
    else:
        share = max(1, here.num_cpus // here.processes)
        workers = max(1, min(MAX_WORKERS, share - 1))
        if "OMP_NUM_THREADS" in maker.made("prefetch").values:
            maker.set("OMP_NUM_THREADS", max(1, share - workers), "threads_beside", workers=workers, share=share)
        maker.loader("num_workers", workers, "workers", share=share, cpus=here.num_cpus, processes=here.processes)
        maker.loader("prefetch_factor", 4, "prefetch_factor", batches=4 * workers)
    maker.loader("pin_memory", True, "pin")
    maker.loader("persistent_workers", True, "persistent")
    if here.shm_bytes is not None and workers:
        most = here.shm_bytes // (here.processes * workers * 4 * 2)
        maker.note("shm_batches", size=units.size(most), shm=units.size(here.shm_bytes))


_MAKERS: dict[str, Callable[[_Maker, Here], None]] = {
    "basic": _basic,
    "conservative": _conservative,
    "ethernet": _ethernet,
    "infiniband": _infiniband,
    "roce": _roce,
    "single-node": _single_node,
    "container": _container,
    "debug-start": _debug_start,
    "debug-hang": _debug_hang,
    "gpu_cache": _gpu_cache,
    "prefetch": _prefetch,
}
NAMES = tuple(_MAKERS)
