"""A process: what it does now, and how it ended."""

from enum import StrEnum, nonmember

from msgspec import Struct

from allready.model.finding import RunNote


class ProcessState(StrEnum):
    """What a process does now, from its state letter in /proc and, once it has ended, from its exit status."""

    NOT_STARTED = "not_started"
    RUNNING = "running"
    SLEEPING = "sleeping"
    DISK = "disk"  # uninterruptible sleep
    STOPPED = "stopped"  # by SIGSTOP, SIGTSTP or a freezer
    TRACED = "traced"  # held by a debugger
    ZOMBIE = "zombie"
    EXITED = "exited"
    KILLED = "killed"  # by a signal
    UNKNOWN = "unknown"

    GONE = nonmember(frozenset({"zombie", "exited", "killed"}))
    """It runs no more."""
    FROZEN = nonmember(frozenset({"stopped", "traced"}))
    """It goes on only when another process lets it."""
    ABLE = nonmember(frozenset({"running", "sleeping"}))
    """It goes on when it gets a processor, or what it waits for."""


class EndKind(StrEnum):
    """How a process left."""

    EXIT = "exit"  # by itself, with a code
    SIGNAL = "signal"
    ABORT = "abort"  # SIGABRT, mostly its own
    OOM = "oom"  # killed by the kernel's OOM killer
    EXCEPTION = "exception"  # with a code, after an exception that was not caught
    NOT_RUN = "not_run"  # its program could not be run, as the process between fork and exec reported


CRASHES = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"})
"""Signals that a process gets through its own doing."""


ENDS = frozenset({
    "nanosleep", "clock_nanosleep", "recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "wait4", "waitid", "fsync",
    "fdatasync", "sync", "syncfs",
})  # fmt: skip
READS = frozenset({"read", "write", "pread64", "pwrite64", "readv", "writev"})
"""System calls that end by themselves; of the second kind those on files and connections."""
POLLS = frozenset({"poll", "ppoll", "epoll_wait", "epoll_pwait", "epoll_pwait2"})
"""System calls that wait for any of several connections."""
LOCK_CALLS = frozenset({"futex", "futex_waitv"})
FILE_LOCKS = frozenset({"flock", "fcntl"})
"""System calls in which a process waits for a file lock; of fcntl no other command blocks."""


class SystemCall(Struct, frozen=True, kw_only=True):
    """Where in the kernel a thread is.

    `name`: the kernel's name of the call; "running": on a processor, "page fault": blocked, and in no call.
    `descriptor`: the one that it waits for.  `has_descriptors`: a select that waits for some, and is no mere sleep.
    Of a futex, `has_limit`: it waits for the lock no longer than a while; `is_shared`: the lock may be of several
    processes.
    """

    name: str
    descriptor: int | None = None
    has_descriptors: bool = False
    has_limit: bool = False
    is_shared: bool = False

    def __str__(self) -> str:
        """`read(5)`, `poll`."""
        return self.name if self.descriptor is None else f"{self.name}({self.descriptor})"


ENDING_SIGNALS = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})
"""By these a process is asked to end."""


class EndCause(StrEnum):
    """Why a rank, or a whole attempt, ended, as far as that decides whether to start it again."""

    SUCCESS = "success"
    USER_EXCEPTION = "user_exception"  # an exception of the script
    EXIT_CODE = "exit_code"  # a code other than 0 and no explanation
    USAGE = "usage"  # wrong arguments, a program that cannot be run
    IMPORT_ERROR = "import_error"  # a module or library is missing or does not fit
    OUT_OF_MEMORY = "out_of_memory"  # of a GPU or of the host
    ENVIRONMENT = "environment"  # driver, limits, disk, /dev/shm: another attempt fails alike
    HARDWARE = "hardware"  # a GPU, a link or memory failed
    NETWORK = "network"  # a connection broke, a peer or the store did not answer
    PORT_IN_USE = "port_in_use"
    RENDEZVOUS = "rendezvous"  # the nodes did not meet
    KILLED = "killed"  # by a signal from outside: preemption, an operator, a scheduler
    CRASHED = "crashed"  # SIGSEGV, SIGBUS, SIGABRT, ... without a better explanation
    NODE_LOST = "node_lost"
    HUNG = "hung"  # terminated by us because it hung, as requested
    STOPPED = "stopped"  # terminated by us: on request, or because another rank had failed
    UNKNOWN = "unknown"


class ProcessEnd(Struct, frozen=True, kw_only=True):
    """How one process ended, in the words of its parent, of its launcher or of itself.

    Neither `exit_code` nor `signal`: the status is lost (another process took it) or not reported.
    `time_s`: wall clock of the node that saw it.  `by_launcher`: it was terminated because another rank had failed or
    the job was to stop, so that its end is no cause.  `cause`: UNKNOWN also before its output has been read.
    `text`: the exception or message that explains it, `signature`: the code of the line that does.
    """

    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    node: str | None = None
    host: str | None = None
    kind: EndKind = EndKind.EXIT
    exit_code: int | None = None
    signal: str | None = None  # "SIGKILL", "signal 35"
    time_s: float | None = None
    by_launcher: bool = False
    cause: EndCause = EndCause.UNKNOWN
    text: str = ""  # "ValueError: bad sample in shard 17"
    signature: str | None = None

    @property
    def is_success(self) -> bool:
        """Exit code 0."""
        return self.exit_code == 0

    @property
    def shell_code(self) -> int:
        """The exit code as a shell gives it: 128 + the number of a signal; 1 where neither is known."""
        if self.exit_code is not None:
            return self.exit_code
        return 128 + number if (number := signal_number(self.signal)) else 1


def end_of(
    exit_code: int | None, signal: str | None, *, rank: int | None = None, time_s: float, oom_killed: bool = False
) -> ProcessEnd:
    """The end of a process whose exit status is known; `kind` follows from it."""
    if oom_killed:
        kind = EndKind.OOM
    elif signal == "SIGABRT":
        kind = EndKind.ABORT
    else:
        kind = EndKind.SIGNAL if signal else EndKind.EXIT
    return ProcessEnd(rank=rank, kind=kind, exit_code=exit_code, signal=signal, time_s=time_s)


def known_signal(number: int) -> str | None:
    """`SIGKILL` for 9; None where it has no name (real-time)."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def signal_name(number: int) -> str:
    """The same; `signal 35` where it has no name."""
    return known_signal(number) or f"signal {number}"


def signal_number(name: str | None) -> int:
    """9 for `SIGKILL`, 35 for `signal 35`; 0 where it is not known."""
    import signal

    if name is None:
        return 0
    try:
        return int(signal.Signals[name])
    except KeyError:
        digits = name.removeprefix("signal ")
        return int(digits) if digits.isdecimal() else 0


OUT_OF_MEMORY = "memory limit of its control group (oom_kill)"
"""Text of a process that the kernel killed; `text/zh_CN/rules/words.toml` has it in Chinese."""


class AttemptEnd(Struct, frozen=True, kw_only=True):
    """How an attempt ended.

    `first`: the rank that failed first by the clock; `cause`: the one that explains the others, mostly the same.
    `reason`: one sentence, said by `text.catalog.say_note`.
    """

    end: EndCause
    reason: RunNote
    first: ProcessEnd | None = None
    cause: ProcessEnd | None = None
    lost_nodes: tuple[int, ...] = ()


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """One attempt of a job under `allready run`: a line of its `attempts.jsonl`.

    Times are wall clock of node 0, as ISO 8601 in UTC.
    `wait_s`: until the next attempt; None: there is none, and `why_last` is why.
    """

    attempt: int
    start: str
    end: str
    duration_s: float
    outcome: EndCause
    reason: str
    exit_code: int
    num_nodes: int
    world_size: int
    first_failed_rank: int | None
    cause_rank: int | None
    lost_nodes: tuple[int, ...]
    excluded_nodes: dict[str, str]  # name or address -> why
    wait_s: float | None
    why_last: str
