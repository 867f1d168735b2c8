"""Words of the recorder in one spelling: operations, dtypes, sizes, and the rank in a file's name."""

from pathlib import PurePosixPath

from allready.patterns import compiled

_SUFFIX = r"(_coalesced|_into_tensor|_tensor|_single|_base|_oop|_v|_sparse)+$"
_SPELLINGS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all", "reducescatter": "reduce_scatter",
    "all_reduce_barrier": "barrier", "allreduce_barrier": "barrier", "all_to_all_v": "all_to_all",
}  # fmt: skip
_P2P = r"^(send|recv)(?: (\d{1,7})(->|<-)(\d{1,7}|\?))?"

BACKENDS_WITH_STATES = frozenset({
    "nccl", "rccl", "xccl", "ncclx", "rcclx", "hccl", "mccl", "nccl2", "nccl-lazy",
})  # fmt: skip
"""Backends whose recorder sees an operation complete (and, but for the last two, start)."""
_RECORD_THEMSELVES = frozenset({"gloo", "nccl", "rccl", "xccl", "ncclx", "rcclx", "hccl", "mccl"})


def is_hooked(backend: str) -> bool:
    """Whether a hook of torch on the process group (2.15) writes this backend's recorder.

    It numbers operations of all kinds from 0 (`op_id`, and the counts in `pg_status`), and collectives from 1.
    """
    return bool(backend) and backend not in _RECORD_THEMSELVES


DTYPES = {
    "Float": ("float32", 4), "Double": ("float64", 8), "Half": ("float16", 2), "BFloat16": ("bfloat16", 2),
    "Long": ("int64", 8), "Int": ("int32", 4), "Short": ("int16", 2), "Char": ("int8", 1), "Byte": ("uint8", 1),
    "Bool": ("bool", 1), "UInt16": ("uint16", 2), "UInt32": ("uint32", 4), "UInt64": ("uint64", 8),
    "ComplexHalf": ("complex32", 4), "ComplexFloat": ("complex64", 8), "ComplexDouble": ("complex128", 16),
    "Float8_e4m3fn": ("float8_e4m3fn", 1), "Float8_e5m2": ("float8_e5m2", 1),
    "Float8_e4m3fnuz": ("float8_e4m3fnuz", 1), "Float8_e5m2fnuz": ("float8_e5m2fnuz", 1),
    "Float8_e8m0fnu": ("float8_e8m0fnu", 1), "QInt8": ("qint8", 1), "QUInt8": ("quint8", 1), "QInt32": ("qint32", 4),
}  # fmt: skip
"""torch::ScalarType as the recorder writes it -> our name, bytes of one element."""

_BYTES_BY_NAME = dict(DTYPES.values())


def operation_name(recorded: str) -> tuple[str, str, int | None, int | None]:
    """`nccl:send 1->2` -> (send, nccl, 1, 2): canonical name, backend, source and destination in the group."""
    backend, colon, rest = recorded.partition(":")
    if not colon:
        backend, rest = "", recorded
    rest = rest.strip()
    p2p = compiled(_P2P).match(rest)
    if p2p:
        kind, left, arrow, right = p2p.groups()
        if left is None:
            return kind, backend, None, None
        own, peer = int(left), None if right == "?" else int(right)  # a receive from any sender
        return (kind, backend, own, peer) if arrow == "->" else (kind, backend, peer, own)
    name = rest.split(" ")[0].lower().lstrip("_")
    short = compiled(_SUFFIX).sub("", name) or name
    return _SPELLINGS.get(name, _SPELLINGS.get(short, short)), backend, None, None


def dtype_name(recorded: str) -> str:
    """`BFloat16` -> bfloat16; what is not known stays as it is."""
    known = DTYPES.get(recorded)
    return known[0] if known else recorded.removeprefix("torch.")


def element_bytes(dtype: str) -> int | None:
    """Size of one element, None when unknown."""
    return _BYTES_BY_NAME.get(dtype)


_ENDINGS = r"(?i)(?:\.(?:pkl|pickle|json|bin|dump|dmp|trace|txt|log|dat|out|gz|xz|bz2|zst|lz4|tar|tgz|zip))+$"
_NAMED = r"(?i)(?:^|[^a-z])(?:global[_-]?)?rank[_\-.=]?(\d{1,7})(?!\d)"
_SHORT = r"(?i)(?:^|[_\-.])r(\d{1,7})(?=$|[_\-.])"
_OF = r"(?i)(\d{1,7})[_\-]?of[_\-]?\d{1,7}$"
_LAST = r"(?<!\d)(\d{1,7})$"


def rank_in_name(name: str) -> int | None:
    """The rank that a file's name tells: `fr_3`, `nccl_trace_rank_12`, `rank3.pkl`, `rank_3/dump.json`."""
    parts = [p for p in PurePosixPath(name.replace("!", "/").replace("\\", "/")).parts if p not in {"/", "."}]
    if not parts:
        return None
    stem = compiled(_ENDINGS).sub("", parts[-1])
    for pattern in (compiled(_NAMED), compiled(_OF), compiled(_SHORT), compiled(_LAST)):
        found = pattern.findall(stem)
        if found:
            return int(found[-1])
    for folder in reversed(parts[:-1]):
        found = compiled(_NAMED).findall(folder)
        if found:
            return int(found[-1])
    return None


def version_of(text: str) -> tuple[int, int]:
    """`2.10` -> (2, 10); (2, 0) when it is not recorded."""
    major, _, minor = text.partition(".")
    if major.isascii() and major.isdigit() and len(major) < 6:
        return int(major), int(minor) if minor.isascii() and minor.isdigit() and len(minor) < 6 else 0
    return (2, 0)
