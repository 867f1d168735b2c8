"""Errors that surface in a line of the program and are not that line's: the network, limits, devices, the launch."""

import re

from msgspec import Struct

from allready.expressions import expression
from allready.model import Death, FaultClass


class Trouble(Struct, frozen=True):
    """What failed a process.  `hint`: a command that shows more.  `is_own`: it is the rank's or its node's own matter,
    not that of a peer or of the way to it.
    """

    name: str
    fault_class: FaultClass
    hint: str
    is_own: bool


NAME = Trouble("name", FaultClass.START_NAME, "getent hosts $MASTER_ADDR", is_own=False)
REACH = Trouble("reach", FaultClass.START_PATH, "nc -vz $MASTER_ADDR $MASTER_PORT", is_own=False)
CLOSED = Trouble("closed", FaultClass.START_ABSENT, "grep -n -E 'srun|nnodes|rdzv' JOBSCRIPT", is_own=False)
LOST = Trouble("lost", FaultClass.DEAD, "grep -n -m 3 -E 'Error|[Kk]illed|signal' OTHER_RANK.log", is_own=False)
SSH = Trouble("ssh", FaultClass.START_PATH, "ssh -o BatchMode=yes HOST hostname", is_own=False)
LIMIT = Trouble("limit", FaultClass.ENV_LIMIT, "ulimit -a; df -h; cat /sys/fs/cgroup/pids.max", is_own=True)
DEVICE = Trouble("device", FaultClass.ENV_LIMIT, "nvidia-smi; env | grep VISIBLE", is_own=True)
VARIABLE = Trouble("variable", FaultClass.ENV_MISMATCH, "env | grep -E 'RANK|WORLD_SIZE|MASTER'", is_own=True)

_PATTERNS: tuple[tuple[Trouble, re.Pattern[str]], ...] = (
    (VARIABLE, expression(r"environment variable \w{1,60} expected")),
    (
        NAME,
        expression(
            r"host not found:|Name or service not known|Temporary failure in name resolution|nodename nor servname|"
            r"No address associated with hostname|failed to resolve|getaddrinfo"
        ),
    ),
    (SSH, expression(r"not reachable via ssh|'ssh [^']{0,300}' returned non-zero|Permission denied \(publickey")),
    (
        LIMIT,
        expression(
            r"can't start new thread|Too many open files|No space left on device|Cannot allocate memory|"
            r"Resource temporarily unavailable|Disk quota exceeded|Stale file handle|Read-only file system|"
            r"Transport endpoint is not connected|Input/output error|unable to mmap|unable to open shared memory"
        ),
    ),
    (
        DEVICE,
        expression(
            r"CUDA out of memory|OutOfMemoryError|No CUDA GPUs are available|Found no NVIDIA driver|"
            r"already in use by process|Unable to initialize backend|invalid device ordinal|"
            r"no kernel image is available|"
            r"driver version is insufficient|driver on your system is too old|all CUDA-capable devices are busy|"
            r"uncorrectable ECC|cuda runtime error \((?:2|10|30|35|36|38|39|46|48|71|100|101|214|802|803|804|999)\)|"
            r"Error 80[234]:|RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|HIP out of memory"
        ),
    ),
    (
        REACH,
        expression(
            r"Connection refused|Connection timed out|No route to host|Network is unreachable|Host is unreachable|"
            r"failed to connect|client socket has timed out|Failed to connect|UNAVAILABLE: |DEADLINE_EXCEEDED|"
            r"Cannot assign requested address|RendezvousConnectionError|RendezvousTimeoutError"
        ),
    ),
    (CLOSED, expression(r"RendezvousClosedError")),
    (
        LOST,
        expression(
            r"Broken pipe|BrokenPipeError|failed to recv, got 0 bytes|Connection reset by peer|"
            r"Connection closed by peer|"
            r"Socket closed|connection was closed|ConnectionResetError|Stop_waiting response is expected"
        ),
    ),
)  # fmt: skip
_ADDRESS = expression(
    r"(?: of| to) \(([\w.:\-]{1,255}), (\d{1,5})\)|(?:connect to (?:host )?|ipv[46]:)\[?([\w.\-]{1,255})\]?:(\d{1,5})"
)
_SERVICE = expression(r"host='([\w.\-]{1,255})'(?:, port=(\d{1,5}))?")
_OF_ANYBODY = expression(r"(?:builtins\.)?(?:RuntimeError|Exception|SystemError)\b")
_SSH_HOST = expression(r"host=([\w.\-]{1,255})|'ssh (?:-o \S{1,100} )*([\w.\-]{1,255})")
_PYTHONS_OWN = expression(
    r"(?:[a-z]\w*\.)*(?:gaierror|(?:Connection|Timeout|OS|IO|HTTP|URL|Proxy|SSL|Max\w{0,40})\w{0,40}Error)\b"
)
_OF_THE_JOB = expression(
    r"\btorch\.distributed|c10d|TCPStore|Dist\w{1,20}Error|[Rr]endezvous|client socket|host not found|\bjax|\bxla|Xla|"
    r"[Cc]oordination|DEADLINE_EXCEEDED|RegisterTask|\bssh\b|environment variable"
)
_OF_LINES = expression(r"(?:[\w.]{0,200}\.)?(?:Assertion|Key|Type|Index|Attribute|Value)Error\b")
"""Python's names for mistakes of a line; torch uses ValueError for two things that are none."""
_OF_NCCL = expression(r"NCCL|ncclUnhandled|DistBackendError")
"""NCCL's own lines say more, and rules read them."""


def trouble_of(death: Death) -> Trouble | None:
    """What failed the process, by its exception or by its last words; None when the line itself may be wrong."""
    text = death.text if death.kind == "exception" else death.last_words if death.kind == "exit" else ""
    if not text or _OF_NCCL.search(text):
        return None
    if death.kind == "exception" and _OF_LINES.match(text) and not _OF_THE_JOB.search(text):
        return None
    return next((trouble for trouble, pattern in _PATTERNS if pattern.search(text)), None)


def is_of_the_program(death: Death) -> bool:
    """A connection of the program's own: to its data or a tracker, not to other ranks."""
    text = words_of(death)
    return trouble_of(death) in {NAME, REACH, LOST} and (
        _PYTHONS_OWN.match(text) is not None
        or (death.kind == "exception" and not _OF_ANYBODY.match(text) and not _OF_THE_JOB.search(text))
    )


def hint_of(trouble: Trouble, death: Death) -> str:
    """Its command, for the address that the words name."""
    text = words_of(death)
    if is_of_the_program(death):
        to = _SERVICE.search(text)
        where = f"{to[1]} {to[2] or ''}".strip() if to is not None else "HOST PORT"
        return f"getent hosts {where}" if trouble is NAME else f"nc -vz {where}"
    if trouble is REACH and (to := _ADDRESS.search(text)) is not None:
        return f"nc -vz {to[1] or to[3]} {to[2] or to[4]}"
    if trouble is SSH and (host := _SSH_HOST.search(text)) is not None:
        return trouble.hint.replace("HOST", host[1] or host[2])
    return trouble.hint


def words_of(death: Death) -> str:
    """The exception, or what stood last before the exit code."""
    return death.text if death.kind == "exception" else death.last_words
