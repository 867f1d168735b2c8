"""Errors that surface in a line of the program and are not that line's: the network, limits, devices, the launch."""

import re

from msgspec import Struct

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

_PATTERNS: tuple[tuple[Trouble, str], ...] = (
    (VARIABLE, r"environment variable \w{1,60} expected"),
    (
        NAME,
        (
            r"host not found:|Name or service not known|Temporary failure in name resolution|"
            r"nodename nor servname|"
            r"No address associated with hostname|failed to resolve|getaddrinfo"
        ),
    ),
    (SSH, r"not reachable via ssh|'ssh [^']{0,300}' returned non-zero|Permission denied \(publickey"),
    (
        LIMIT,
        (
            r"can't start new thread|Too many open files|No space left on device|Cannot allocate memory|"
            r"Resource temporarily unavailable|Disk quota exceeded|Stale file handle|Read-only file system|"
            r"Transport endpoint is not connected|Input/output error|unable to mmap|unable to open shared memory"
        ),
    ),
    (
        DEVICE,
        (
            r"CUDA out of memory|OutOfMemoryError|No CUDA GPUs are available|Found no NVIDIA driver|"
            r"already in use by process|Unable to initialize backend|invalid device ordinal|"
            r"no kernel image is available|"
            r"driver version is insufficient|driver on your system is too old|all CUDA-capable devices are busy|"
            r"uncorrectable ECC|cuda runtime error \((?:2|10|30|35|36|38|39|46|48|71|100|101|214|802|803|804|999)\)|"
            r"Error 80[234]:|RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|(?:HIP|NPU|XPU) out of memory|"
            r"Device acquire failed"
        ),
    ),
    (
        REACH,
        (
            r"Connection refused|Connection timed out|No route to host|Network is unreachable|Host is unreachable|"
            r"failed to connect|client socket has timed out|Failed to connect|UNAVAILABLE: |DEADLINE_EXCEEDED|"
            r"Cannot assign requested address|RendezvousConnectionError|RendezvousTimeoutError"
        ),
    ),
    (CLOSED, r"RendezvousClosedError"),
    (
        LOST,
        (
            r"Broken pipe|BrokenPipeError|failed to recv, got 0 bytes|Connection reset by peer|"
            r"Connection closed by peer|"
            r"Socket closed|connection was closed|ConnectionResetError|Stop_waiting response is expected"
        ),
    ),
)
_ADDRESS = (
    r"(?: of| to) \(([\w.:\-]{1,255}), (\d{1,5})\)|(?:connect to (?:host )?|ipv[46]:)\[?([\w.\-]{1,255})\]?:(\d{1,5})"
)
_SERVICE = r"host='([\w.\-]{1,255})'(?:, port=(\d{1,5}))?"
_OF_ANYBODY = r"(?:builtins\.)?(?:RuntimeError|Exception|SystemError)\b"
_SSH_HOST = r"host=([\w.\-]{1,255})|'ssh (?:-o \S{1,100} )*([\w.\-]{1,255})"
_PYTHONS_OWN = r"(?:[a-z]\w*\.)*(?:gaierror|(?:Connection|Timeout|OS|IO|HTTP|URL|Proxy|SSL|Max\w{0,40})\w{0,40}Error)\b"
_OF_THE_JOB = (
    r"\btorch\.distributed|c10d|TCPStore|Dist\w{1,20}Error|[Rr]endezvous|client socket|host not found|\bjax|\bxla|Xla|"
    r"[Cc]oordination|DEADLINE_EXCEEDED|RegisterTask|\bssh\b|environment variable"
)
_OF_LINES = r"(?:[\w.]{0,200}\.)?(?:Assertion|Key|Type|Index|Attribute|Value)Error\b"
"""Python's names for mistakes of a line; torch uses ValueError for two things that are none."""
_OF_NCCL = r"NCCL|ncclUnhandled|DistBackendError"
"""NCCL's own lines say more, and rules read them."""


def trouble_of(death: Death) -> Trouble | None:
    """What failed the process, by its exception or by its last output; None when the line itself may be wrong."""
    text = death.text if death.kind == "exception" else death.last_words if death.kind == "exit" else ""
    if not text or re.search(_OF_NCCL, text):
        return None
    if death.kind == "exception" and re.match(_OF_LINES, text) and not re.search(_OF_THE_JOB, text):
        return None
    return trouble_in(text)


def trouble_in(text: str, flags: int = 0) -> Trouble | None:
    """What these words say failed.  `flags`: of re; Go writes the system's words in small letters."""
    return next((trouble for trouble, pattern in _PATTERNS if re.search(pattern, text, flags)), None)


def is_of_the_program(death: Death) -> bool:
    """A connection of the program's own: to its data or a tracker, not to other ranks."""
    text = words_of(death)
    return trouble_of(death) in {NAME, REACH, LOST} and (
        re.match(_PYTHONS_OWN, text) is not None
        or (death.kind == "exception" and not re.match(_OF_ANYBODY, text) and not re.search(_OF_THE_JOB, text))
    )


def hint_of(trouble: Trouble, death: Death) -> str:
    """Its command, for the address that the words name."""
    text = words_of(death)
    if is_of_the_program(death):
        to = re.search(_SERVICE, text)
        where = f"{to[1]} {to[2] or ''}".strip() if to is not None else "HOST PORT"
        return f"getent hosts {where}" if trouble is NAME else f"nc -vz {where}"
    if trouble is REACH and (to := re.search(_ADDRESS, text)) is not None:
        return f"nc -vz {to[1] or to[3]} {to[2] or to[4]}"
    if trouble is SSH and (host := re.search(_SSH_HOST, text)) is not None:
        return trouble.hint.replace("HOST", host[1] or host[2])
    return trouble.hint


def words_of(death: Death) -> str:
    """The exception, or what stood last before the exit code."""
    return death.text if death.kind == "exception" else death.last_words
