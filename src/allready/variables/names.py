"""Names that are nearly right."""

import functools
from collections import Counter

from allready.variables import table
from allready.variables.slips import distance

MAX_NAME_CHARS = 80


@functools.lru_cache(maxsize=1024)  # each name is asked for by several rules
def _nearest(name: str) -> tuple[str, ...]:
    if not 4 <= len(name) <= MAX_NAME_CHARS:
        return ()
    upper = name if name.startswith("--") else name.upper()  # flags are in small letters
    known = _by_words()
    if upper != name and upper in table.names():
        return (upper,)
    if same := known.get(_words(upper)):
        return tuple(sorted(same))
    if meant_by := _by_sense().get(_sense(upper)):
        return (meant_by,)
    if completed := _begun(upper) if name.startswith("--") else _completed(upper):
        return (completed,)
    limit = 1 if len(name) < 12 else 2
    letters, mask = Counter(upper), _mask(upper)
    found: list[tuple[int, bool, str]] = []
    for other, theirs in _masks().items():
        is_far = abs(len(other) - len(upper)) > limit or (mask ^ theirs).bit_count() > 2 * limit
        if is_far or _far(letters, other, limit):
            continue
        steps = distance(upper, other, limit)
        if steps is not None and not (steps > 1 and _is_another_word(upper, other)):
            found.append((steps, is_folk(other), other))
    return tuple(other for _, _, other in sorted(found))


def nearest(name: str, *, most: int = 3) -> list[str]:
    """Known names that `name` may be a slip of the pen for, the likeliest first; [] when none is near.

    A slip is another case, another order or another spelling of the words, or one or two wrong, missing, doubled or
    swapped letters.
    """
    return list(_nearest(name)[:most])


@functools.cache
def _masks() -> dict[str, int]:
    return {name: _mask(name) for name in table.names()}


def _mask(name: str) -> int:
    """Which letters a name has, as bits: much faster to compare than how many of each."""
    bits = 0
    for letter in name:
        bits |= 1 << (ord(letter) & 63)
    return bits


def is_folk(name: str) -> bool:
    """Whether a name of the table is one that nothing reads."""
    row = table.load().get(name)
    return row is not None and row.is_folk


def family(name: str) -> str:
    """`NCCL` of NCCL_DEBUG."""
    return name.partition("_")[0]


FAMILIES = frozenset({"NCCL", "GLOO", "TORCHELASTIC", "ACCELERATE"})
"""First words of names that belong to one library alone: an unknown name that begins so has no effect."""


_LEFT_OUT = frozenset({"TORCH", "SEC", "ENABLE", "LEVEL", "FILE"})
"""Words of names that people leave out: NCCL_NVLS for NCCL_NVLS_ENABLE."""
_SPELLINGS = {
    "COUNT": "CNT", "COUNTS": "CNT", "IDX": "INDEX", "INTERFACE": "IFNAME", "INTERFACES": "IFNAME", "IFACE": "IFNAME",
    "DISABLED": "DISABLE", "ENABLED": "ENABLE", "ADDRESS": "ADDR", "CONFIG": "CONF", "ALLOCATOR": "ALLOC",
    "TOPOLOGY": "TOPO", "MILLISECONDS": "MSEC", "SECONDS": "SEC", "SECS": "SEC",
}  # fmt: skip
"""Words for which names have shorter ones."""
_TIMEOUT = "torch.distributed.init_process_group(timeout=...)"
_MEANT: tuple[tuple[str, str], ...] = (
    ("HEARTBEAT", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
    ("TIMEOUT", _TIMEOUT),
    ("BLOCKING", "TORCH_NCCL_BLOCKING_WAIT"),
    ("ERROR", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    ("LOG LOGS LOGGING VERBOSE VERBOSITY", "NCCL_DEBUG"),
    ("GDR GPUDIRECT", "NCCL_NET_GDR_LEVEL"),
    ("GID GIDINDEX", "NCCL_IB_GID_INDEX"),
    ("HCA HCAS", "NCCL_IB_HCA"),
    ("NVLINK NVL", "NCCL_P2P_LEVEL=NVL"),
    ("PORT PORTS", "sysctl net.ipv4.ip_local_port_range"),
    ("INTERFACE INTERFACES IFACE IFNAME IFNAMES NIC NICS", "NCCL_SOCKET_IFNAME"),
    ("CHANNEL CHANNELS NCHANNELS RINGS NRINGS", "NCCL_MIN_CTAS, NCCL_MAX_CTAS"),
    ("BUFFER BUFF BUFFERSIZE", "NCCL_BUFFSIZE"),
    ("RETRY RETRIES", "NCCL_SOCKET_RETRY_CNT, NCCL_IB_RETRY_CNT"),
    ("MTU", "ip link set dev INTERFACE mtu BYTES"),
    ("ALGORITHM ALGORITHMS", "NCCL_ALGO"),
    ("PROTOCOL PROTOCOLS", "NCCL_PROTO"),
    ("TOPOLOGY", "NCCL_TOPO_FILE"),
    ("TRANSPORT NETWORK", "NCCL_NET"),
    ("SOCKETS NSOCKS", "NCCL_NSOCKS_PERTHREAD"),
    ("VISIBLE", "CUDA_VISIBLE_DEVICES"),
    ("RANK", "RANK"),
    ("WORLD", "WORLD_SIZE"),
    ("HOST MASTER", "MASTER_ADDR"),
    ("RDMA USE", "NCCL_IB_DISABLE=0"),
)
"""Words of invented names, and what does what such a name promises; the first that fits counts."""
_GLOO_MEANT = {_TIMEOUT: _TIMEOUT, "NCCL_SOCKET_IFNAME": "GLOO_SOCKET_IFNAME"}


def instead_of(name: str) -> str:
    """What does the job that an unknown name of NCCL or Gloo seems to promise; "" where it promises nothing known."""
    words = _words(name)
    does = next((use for alike, use in _MEANT if words & set(alike.split())), "")
    if name.startswith("TORCH_NCCL_"):
        return does if does == _TIMEOUT else ""
    return does if family(name) == "NCCL" else _GLOO_MEANT.get(does, "") if family(name) == "GLOO" else ""


def _completed(name: str) -> str:
    """The only known name that has a word or two more of those that people leave out; "" where there are several."""
    if family(name) not in FAMILIES:
        return ""
    words = _words(name)
    found = [names for theirs, names in _by_words().items() if words < theirs and theirs - words <= _LEFT_OUT]
    real = [other for names in found for other in names if not is_folk(other)]
    return real[0] if len(real) == 1 else ""


@functools.cache
def _by_sense() -> dict[frozenset[str], str]:
    """Real names by their words, however these are spelt, and without the lines between them.

    Words that fit several names are left out.  NAME_DEBUG is also known as NAME_DEBUG_LEVEL.
    """
    grouped: dict[frozenset[str], list[str]] = {}
    for name in sorted(table.names()):
        if not is_folk(name) and "_" in name and not name.startswith("--"):
            grouped.setdefault(_sense(name), []).append(name)
            grouped.setdefault(frozenset({name.replace("_", "")}), []).append(name)
            if name.endswith("_DEBUG"):
                grouped.setdefault(_sense(name) | {"LEVEL"}, []).append(name)
    return {words: names[0] for words, names in grouped.items() if len(set(names)) == 1}


def _sense(name: str) -> frozenset[str]:
    return frozenset(_SPELLINGS.get(word, word) for word in name.split("_"))


def _begun(flag: str) -> str:
    """The only flag that goes on where this one ends; "" where there are several."""
    longer = [other for other in table.flags_seen().flags if other.startswith(f"{flag}_")]
    return longer[0] if len(longer) == 1 else ""


def _is_another_word(name: str, other: str) -> bool:
    """Whether the word in which the names differ is one that known names have: NCCL_PCI_DISABLE is no slip of P2P."""
    one, two = name.split("_"), other.split("_")
    pairs = list(zip(one, two, strict=True))[1:] if len(one) == len(two) else []
    differing = [a for a, b in pairs if a != b]
    return len(differing) == 1 and any(differing[0] in words for words in _by_words())


@functools.cache
def _by_words() -> dict[frozenset[str], list[str]]:
    grouped: dict[frozenset[str], list[str]] = {}
    for name in sorted(table.names()):
        grouped.setdefault(_words(name), []).append(name)
    return grouped


def _words(name: str) -> frozenset[str]:
    return frozenset(name.split("_"))


def _far(letters: Counter[str], other: str, limit: int) -> bool:
    theirs = Counter(other)
    return max(sum((letters - theirs).values()), sum((theirs - letters).values())) > limit
