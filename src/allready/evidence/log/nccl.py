"""NCCL's and RCCL's INFO lines of one process -> its `ProcessRecord`.  All shapes from 2.8 to 2.30."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, field

from allready.evidence.log.comms import Comms
from allready.model import BOOTSTRAP_TOTAL, NcclChoice, NcclDiagnostic, Transport
from allready.patterns import compiled
from allready.redaction import masked_value

_Item = TypeVar("_Item")

MAX_TRANSPORTS = 4096
MAX_NAMES = 256

_CHANNEL = (
    r"Channel (\d+)(?:/(\d+))? : (\d+)\[[0-9a-fA-F]+\] -> (\d+)\[[0-9a-fA-F]+\] (?:\[(send|receive)\] )?via (.{1,120}?)"
    r"(?: comm (0x[0-9a-fA-F]+).*)?$"
)
_ENV = r"([A-Z][A-Z0-9_]{2,80}) set(?: by (?:environment|env))? to (.*)$"
_ADDRESS = r"(?:\[\d+\])?([\w.@\-]{1,64}):(\S{2,100}?)<\d+>"
_PORT = r"(?:^|[\s=\]{])([A-Za-z][\w.\-]{0,63}):(\d{1,3})/(IB|RoCE|ROCE|Ethernet)\b"
_GDR_NIC = r"NET/(\S{1,60}) : GPU Direct RDMA (Enabled|Disabled) for HCA (\d+) '([^']{1,64})'"
_COUNTS = r"(\d+) (coll|collnet|nvls|p2p) channels( per peer)?"
_TUNING = r"(?:(\w{1,40}): )?(\d+) Bytes -> Algo (\w{1,30}) proto (\w{1,20})( time )?"
_DIAGNOSTIC = r"NCCL DIAG \[(\w{1,12})\] {1,8}([\w/ ]{1,60}): (.{1,500})"
_OFF_MEDIAN = r"\S{1,40} rank (\d{1,9}) \(.{1,200}?\): [\d.]{1,20} Gbit/s, >\d+% off median"
_P2P_WRONG = r"only \d+/\d+ GPU-to-GPU peer accesses passed|(?:write|read) mismatch"
_TIMINGS = r"Init timings(?: - \w{1,60})?: rank \d+ nranks (\d+) total ([\d.]{1,20}) \(([^)]{1,400})\)"
_BOOTSTRAP = r"Bootstrap timings total ([\d.]{1,20}) \(([^)]{1,400})\)"
_PART = r"(\w{1,40}) ([\d.]{1,20})(?:,|$)"
_VERSION = r"(NCCL|RCCL|HIP|ROCm) version *:? *(\d[\w.]*?)((?:\+|-).*)?(?:\s|$)"
_CUDA = r"\+cuda(\d+(?:\.\d+)*)"
_HIP = r"\+hip(\d+(?:\.\d+)*)"
_PLUGIN = (
    r"(?:(NET|TUNER|PROFILER|ENV|GIN|RMA|COLLNET)/Plugin ?: )?(?:Loaded|Using|Successfully loaded external) "
    r"(?:(?:net|network|coll|collnet|tuner|profiler|tuning) )?(?:plugin )?([\w.\-/ ]{1,80}?)(?: plugin)?"
    r"(?: \(?(v\d{1,3})\)?)?$"
)
_PROVIDER = r"NET/(\w{1,30}) (?:Selected [Pp]rovider is|Using aws-ofi-nccl) ([\w.\-;]{1,60})"
_FILLED = r"Filled ([\w.\-]{1,64}) in topo"
_CODE = r"[\w./\-]{1,200}:\d+ -> \d+"
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_COPIED = (
    "host", "pid", "node", "versions", "env", "network", "plugins", "interfaces", "oob", "hcas", "gdr", "num_channels",
    "algorithms", "phases_s",
)  # fmt: skip
"""Fields of a `ProcessRecord` that are `NcclProcess`'s own."""

_UNDERSTOOD = (
    r"Connected |New proxy|Tree |Trees |Ring |Pattern |Channel |GPU/|NET/|CPU/|NVS/|PCI/|NIC/|GIN/|=+|\+ |\d+ : |"
    r"Topology|TOPO/NET|Could not (?:get speed|find real path)|MNNVL|RAS |Comm config|CC O|P2P |Check P2P|ncclP2p|"
    r"\[Proxy|\[Service|\[MSCCL|threadThresholds|Setting affinity|NVLS |DMA-BUF|Initialized|Assigned|Intra|ncclTopo|"
    r"Failed to initialize NET plugin|Failed to find ncclNet|dlvsym failed|Latency/AlgBw|Max NThreads|comm 0x|"
    r"\w+/Plugin|Using |Plugin |Ring|coll channels|Symmetric|Register|register|Mem |Allocated|Connecting|P2P/|SHM|"
    r"workFifo|Dynamic|Hostname|Librccl|Launch mode|Kernel|GPU Direct|Algorithm|Protocol|Function|isAll|Nvls|"
    r"Rank \d+ has color|misc/|socketProgressOpt: abort called|Received and initiated operation|UDS|ncclProxy|proxy|"
    r"(?:Loading|Loaded|Unloading|Closing|Destroying) |\|"
)
"""Beginnings of INFO lines that are understood and say nothing that is kept."""

_TEARDOWN = (
    r"Destroy (?:START|COMPLETE)|Abort (?:START|COMPLETE)|Revoke |Closing env plugin|abort called|"
    r"Connection closed by localRank|[Uu]nload|[Ff]inaliz"
)
_CONNECT = r"Channel |Connected |New proxy|Connecting|P2P/|Received and initiated operation|\[Proxy Progress"
_INIT = (
    r"Init (?:START|COMPLETE|timings)|Bootstrap|NET/|/Plugin|Using network|version|cudaDriver|set by env|comm 0x|Tree|"
    r"Ring|Pattern|Topology|TOPO|GPU/|CPU/|NVS/|MNNVL|channels|threadThresholds|Comm config|Setting affinity|RAS|=== |"
    r"\[Proxy Service|Initialized|Assigned|DMA-BUF|NVLS|CC O|P2P |Check|dlvsym|Could not|ncclTopo|ncclP2p"
)


def class_of(text: str, level: str | None, *, is_nccl: bool = True) -> str:
    """What a process was doing when it printed this: see `ProcessRecord.last_line_class`."""
    if ": opCount " in text:
        return "operation"
    if compiled(_TEARDOWN).search(text):
        return "teardown"
    if level in (("ERROR", "FATAL", "ABORT", "WARN") if is_nccl else ("ERROR", "FATAL")) or compiled(_CODE).match(text):
        return "error"
    if compiled(_CONNECT).match(text):
        return "connect"
    return "init" if compiled(_INIT).search(text) else "other"


def choice_of(text: str) -> NcclChoice | None:
    """What a line of NCCL's TUNING says: the algorithm and protocol of an operation of one size."""
    match = compiled(_TUNING).search(text)
    if match is None:
        return None
    operation, size_bytes, algorithm, protocol, time = match.groups()
    return NcclChoice(
        operation=operation or "",
        size_bytes=int(size_bytes[:18]),
        is_whole=time is not None,
        algorithm=_named(algorithm, _ALGORITHMS),
        protocol=_named(protocol, _PROTOCOLS),
    )


def diagnostic_of(text: str) -> NcclDiagnostic | None:
    """A line of NCCL's own diagnostics (NCCL_RUN_DIAGNOSTICS, NCCL_RUN_RAS_DIAGNOSTICS)."""
    match = compiled(_DIAGNOSTIC).search(text)
    if match is None:
        return None
    level, check, words = match.groups()
    off, kind = compiled(_OFF_MEDIAN).match(words) if check == "net bw" else None, ""
    if off is not None:
        kind = "slow_network"
    elif check == "p2p" and compiled(_P2P_WRONG).match(words):
        kind = "p2p_wrong"
    return NcclDiagnostic(level=level, check=check, text=words, kind=kind, rank=int(off[1]) if off else None)


@functools.lru_cache(maxsize=4096)
def _is_understood(text: str) -> bool:
    """Whether a line from which nothing is kept is of a known kind."""
    return compiled(_UNDERSTOOD).match(text.lstrip()) is not None or compiled(_CODE).match(text) is not None


@functools.lru_cache(maxsize=512)  # most ranks of a job print the same words
def version_of(text: str) -> Mapping[str, str]:
    """The versions that one line tells: "nccl", "cuda", "rccl", "hip", "rocm"."""
    match = compiled(_VERSION).search(text)
    if match is None:
        return {}
    found = {match[1].lower(): match[2]}
    for name, pattern in (("cuda", compiled(_CUDA)), ("hip", compiled(_HIP))):
        built = pattern.search(match[3] or "")
        if built is not None:
            found[name] = built[1]
    return found


class NcclProcess(Struct):
    """One process of one host, line by line."""

    host: str
    pid: int
    cuda_dev: int | None = None
    node: str | None = None
    versions: dict[str, str] = {}
    env: dict[str, str] = {}
    network: str | None = None
    plugins: list[str] = []
    interfaces: list[tuple[str, str]] = []
    oob: tuple[str, str] | None = None
    hcas: list[str] = []
    available: list[str] = []
    gdr: dict[str, bool] = {}
    num_channels: dict[str, int] = {}
    algorithms: dict[str, int] = {}
    phases_s: dict[str, float] = {}
    comms: Comms = field(default_factory=Comms)
    _transports: dict[tuple[int, int, str, str, str | None], set[tuple[str, str]]] = {}
    _timed_ranks: int = 0
    _tid: int | None = None  # of the line that is read
    _time_s: float | None = None
    _line: int = 0

    def feed(self, text: str, *, tid: int | None, time_s: float | None, line: int) -> bool:
        """Take one INFO line in; False when it is of no known kind."""
        self._tid, self._time_s, self._line = tid, time_s, line
        for reader in _readers_of(text):
            if reader(self, text):
                return True
        return _is_understood(text)

    def facts(self, first_operations: Mapping[str, int] | None = None) -> dict[str, Any]:
        """What a `ProcessRecord` has of it.  `first_operations`: communicator -> line of its first COLL line."""
        world = self.comms.world()
        layout = None if world is None else self.comms.layout.get(world.comm)
        chosen = {i for i, _ in self.interfaces} | {hca.partition(":")[0] for hca in self.hcas}
        available = [name for name in self.available if name not in chosen]
        if self.oob is not None and self.interfaces and self.oob[0] not in {i for i, _ in self.interfaces}:
            available.append(self.oob[0])
        return {name: tuple(value) if isinstance(value := getattr(self, name), list) else value for name in _COPIED} | {
            "rank": None if world is None else world.rank,
            "local_rank": None if layout is None else layout[2],
            "cuda_dev": self.cuda_dev if world is None or world.cuda_dev is None else world.cuda_dev,
            "nvml_dev": None if world is None else world.nvml_dev,
            "bus_id": None if world is None else world.bus_id,
            "available": tuple(dict.fromkeys(available)),
            "num_nodes": None if layout is None else layout[0],
            "num_local_ranks": None if layout is None else layout[1],
            "comms": self.comms.records(),
            "transports": self._all_transports(first_operations or {}),
        }

    def _all_transports(self, first_operations: Mapping[str, int]) -> tuple[Transport, ...]:
        merged: dict[tuple[int, int, str, str, str | None], set[tuple[str, str]]] = {}
        for (src, dst, how, direction, comm), channels in self._transports.items():
            if comm is not None and comm.startswith("@"):
                comm = self.comms.connecting(int(comm[1:]), first_operations)
            merged.setdefault((src, dst, how, direction, comm), set()).update(channels)
        return tuple(
            Transport(src=src, dst=dst, how=how, direction=direction, num_channels=len(channels), comm=comm)
            for (src, dst, how, direction, comm), channels in merged.items()
        )

    # Readers of one line each; True when the line was theirs.

    def read_comm(self, text: str) -> bool:
        return self.comms.feed(text, tid=self._tid, time_s=self._time_s)

    def read_channel(self, text: str) -> bool:
        match = compiled(_CHANNEL).match(text)
        if match is None:
            return text.startswith("Channel ")
        channel, connection, src, dst, direction, how, comm = match.groups()
        if comm is None:
            comm = self.comms.initialising(self._tid)
        if comm is None:
            comm = f"@{self.comms.burst(self._line)}"
        key = (int(src), int(dst), how.strip(), direction or "", comm)
        if key in self._transports or len(self._transports) < MAX_TRANSPORTS:
            self._transports.setdefault(key, set()).add((channel, connection or ""))
        return True

    def read_connected(self, text: str) -> bool:
        if text.startswith(("Connected all", "Connected binomial", "Connected NVLS", "Connected Coll")):
            self.comms.end_burst()
        return True

    def read_setting(self, text: str) -> bool:
        match = compiled(_ENV).match(text)
        if match is None:
            return False
        name, value = match[1], match[2].strip()
        if value.endswith(".") and value[:-1].lstrip("-").isdigit():
            value = value[:-1]
        if name in self.env or len(self.env) < MAX_NAMES:
            self.env[name] = masked_value(name, value)
        if name == "NCCL_HOSTID":
            self.node = value
        return True

    def read_net(self, text: str) -> bool:
        head, _, oob = text.partition("OOB ")
        if " : Using " in head:
            if "NET/Socket" in head or "NET/IB" not in head:
                _add(self.interfaces, *compiled(_ADDRESS).findall(head))
            _add(self.hcas, *(f"{name}:{port}/{layer}" for name, port, layer in compiled(_PORT).findall(head)))
        if self.oob is None and (address := compiled(_ADDRESS).search(oob)) is not None:
            self.oob = (address[1], address[2])
        if (gdr := compiled(_GDR_NIC).match(text)) is not None and len(self.gdr) < MAX_NAMES:
            self.gdr[gdr[4]] = gdr[2] == "Enabled"
        if (provider := compiled(_PROVIDER).match(text)) is not None:
            _add(self.plugins, f"NET {provider[1]} {provider[2]}")
        self.read_plugin(text)
        return text.startswith("NET/")

    def read_bootstrap(self, text: str) -> bool:
        timings = compiled(_BOOTSTRAP).match(text)
        if timings is not None:
            total = _number(timings[1])
            if total > self.phases_s.get(BOOTSTRAP_TOTAL, -1.0):
                self.phases_s[BOOTSTRAP_TOTAL] = total
                self.phases_s |= {
                    f"bootstrap {name}": _number(value) for name, value in compiled(_PART).findall(timings[2])
                }
            return True
        match = compiled(_ADDRESS).search(text) if "Using" in text else None
        if match is not None:
            self.oob = (match[1], match[2])
        return match is not None or "Using" in text

    def read_network(self, text: str) -> bool:
        if not text.startswith("Using network "):
            return False
        self.network = text.removeprefix("Using network ").strip() or None
        return True

    def read_initialized(self, text: str) -> bool:
        for start in ("Initialized NET plugin ", "Assigned NET plugin "):
            if text.startswith(start):
                name = text.removeprefix(start).removesuffix(" to comm").strip()
                self.network = self.network or name or None
                return True
        return False

    def read_plugin(self, text: str) -> bool:
        match = compiled(_PLUGIN).match(text)
        if match is None or (match[1] is None and "external" not in text):
            return False
        if "internal" not in match[2]:  # NCCL's own
            _add(self.plugins, " ".join(part for part in (match[1] or "NET", match[2].strip(), match[3]) if part))
        return True

    def read_versions(self, text: str) -> bool:
        found = version_of(text)
        self.versions |= found
        return bool(found)

    def read_driver(self, text: str) -> bool:
        value = text.removeprefix("cudaDriverVersion ").strip()
        if value.isdigit():
            self.versions["cuda-driver"] = value[:20]
        return True

    def read_counts(self, text: str) -> bool:
        self.num_channels |= {
            f"{kind}{per_peer}": int(number) for number, kind, per_peer in compiled(_COUNTS).findall(text)
        }
        return True

    def read_tuning(self, text: str) -> bool:
        choice = choice_of(text)
        if choice is None:
            return False
        key = f"{choice.algorithm}/{choice.protocol}"
        key = f"{choice.operation} {key}" if choice.operation else key
        if key in self.algorithms or len(self.algorithms) < MAX_NAMES:
            self.algorithms[key] = self.algorithms.get(key, 0) + 1
        return True

    def read_timed(self, text: str) -> bool:
        match = compiled(_TIMINGS).match(text)
        if match is None:
            return False
        if int(match[1]) > self._timed_ranks:
            self._timed_ranks = int(match[1])
            self.phases_s["init total"] = _number(match[2])
            self.phases_s |= {f"init {name}": _number(value) for name, value in compiled(_PART).findall(match[3])}
        return True

    def read_filled(self, text: str) -> bool:
        match = compiled(_FILLED).search(text)
        if match is not None:
            _add(self.available, match[1])
        return match is not None


def _add(items: list[_Item], *more: _Item) -> None:
    for item in more:
        if item not in items and len(items) < MAX_NAMES:
            items.append(item)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _named(word: str, names: tuple[str, ...]) -> str:
    return names[int(word)] if word.isdigit() and int(word) < len(names) else word


_Reader = Callable[[NcclProcess, str], bool]
_READERS: dict[str, _Reader] = {
    "Channel": NcclProcess.read_channel,
    "Connected": NcclProcess.read_connected,
    "Bootstrap": NcclProcess.read_bootstrap,
    "Bootstrap:": NcclProcess.read_bootstrap,
    "Using": NcclProcess.read_network,
    "Init": NcclProcess.read_timed,
    "Initialized": NcclProcess.read_initialized,
    "Assigned": NcclProcess.read_initialized,
    "cudaDriverVersion": NcclProcess.read_driver,
    "NCCL": NcclProcess.read_versions,
    "RCCL": NcclProcess.read_versions,
    "HIP": NcclProcess.read_versions,
    "ROCm": NcclProcess.read_versions,
    "ncclTopoPopulateNics": NcclProcess.read_filled,
}
_BY_MARK: tuple[tuple[str, _Reader], ...] = (
    ("comm 0x", NcclProcess.read_comm),
    (" set ", NcclProcess.read_setting),
    ("NET/", NcclProcess.read_net),
    (" Bytes -> Algo ", NcclProcess.read_tuning),
    (" coll channels", NcclProcess.read_counts),
    ("lugin", NcclProcess.read_plugin),
)


@functools.lru_cache(maxsize=4096)
def _readers_of(text: str) -> tuple[_Reader, ...]:
    """Who is asked about a line, in this order, by its first word and by words in it."""
    first = _READERS.get(text.partition(" ")[0])
    marked = [reader for mark, reader in _BY_MARK if mark in text]
    return tuple(marked if first is None else [first, *marked])
