"""What several lines say of one process's end, put together into one `Death`."""

from collections.abc import Sequence

from msgspec import Struct

from allready.model import CallSite, Death, Origin
from allready.model.process import known_signal

_KINDS = ("exit", "signal", "abort", "exception", "oom")
"""A kind explains those before it in this list: an exception explains exit code 1."""
_EITHER = (
    "by_launcher", "first", "is_collective_error", "is_own", "is_table", "is_handlers", "call", "last_words",
)  # fmt: skip
"""Fields of one end that are those of whichever statement has them."""
HYDRA = "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
"""How MPICH's and Intel MPI's launcher begins what it says of each process that ended badly."""

_KILLS = ("SIGKILL", "SIGTERM")
_WINDOWS_ERROR, _WINDOWS_INTERRUPT = 0xC, 0xC000013A
_WINDOWS_FAULTS = {
    0xC0000005: "access violation",
    0xC0000006: "in-page error",
    0xC0000017: "out of memory",
    0xC000001D: "illegal instruction",
    0xC0000094: "division by zero",
    0xC00000FD: "stack overflow",
    0xC000012D: "out of memory and paging file",
    0xC0000135: "DLL not found",
    0xC0000139: "entry point of a DLL not found",
    0xC0000142: "DLL initialization failed",
    0xC0000374: "heap corruption",
    0xC0000409: "fail fast, or stack buffer overrun",
    0xC06D007E: "module not found",
}
"""NTSTATUS, in Windows' own words."""
_NEAR_LINES = 200
_MAX_CANDIDATES = 64


def windows_fault(code: int) -> str | None:
    """What ended a process of Windows, by its exit code, which some print as a negative number: `access violation
    (0xC0000005)`; None of an ordinary code.  Control-C is the signal of the same name."""
    status = code + (1 << 32) if code < 0 else code
    if status >> 28 != _WINDOWS_ERROR:
        return None
    if status == _WINDOWS_INTERRUPT:
        return "SIGINT"
    name = _WINDOWS_FAULTS.get(status)
    return f"{name} (0x{status:08X})" if name else f"0x{status:08X}"


class DeathDraft(Struct, kw_only=True):
    """What one line or block says of one process's end; of who it was only as much as the words say.

    `task`: srun's or mpirun's number of the process.  `writer`: whose stream it stands in; local ranks mean something
    only there.
    """

    kind: str
    origin: Origin = Origin(source="")
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    writer: object = None
    node: str | None = None
    host: str | None = None
    pid: int | None = None
    signal: str | None = None
    exit_code: int | None = None
    text: str = ""
    site: CallSite | None = None
    call: str = ""
    time_s: float | None = None
    by_launcher: bool = False
    first: bool = False
    is_collective_error: bool = False
    is_own: bool = False  # in the process's own message
    is_open: bool = False  # a traceback that stands last, of which nothing says that it was not caught
    is_table: bool = False  # the launcher's last message
    last_words: str = ""
    last_error: str = ""
    is_agents: bool = False  # a launcher's own exception: of a task, of no rank
    num_words: int = 1  # how many statements on a library's error were put together
    is_handlers: bool = False  # of a handler of signals, which knows the process and not the reason

    def set_exit(self, code: int) -> None:
        """Exit code as a launcher prints it: negative for a signal, a shell's 128 + signal too; Windows' of a crash."""
        number = -code if code < 0 else code - 128 if 128 < code < 160 else 0
        self.signal = (known_signal(number) if number else None) or windows_fault(code) or self.signal
        self.exit_code = code
        if self.kind == "exit" and self.signal is not None:
            self.kind = "abort" if self.signal == "SIGABRT" else "signal"

    def finished(self) -> Death:
        fields = {name: getattr(self, name) for name in Death.__struct_fields__ if name in self.__struct_fields__}
        return Death(
            **fields
            | {"text": self.text[:1000], "last_words": self.last_words[:1000], "last_error": self.last_error[:1000]}
        )


def merge(drafts: Sequence[DeathDraft]) -> list[Death]:
    """One death for each process: statements are joined where pid, rank or local rank say that they mean the same."""
    once = _merged(_swept(_signed(drafts)))
    merged = _handled(_explained(_aborted(_merged(once))))  # twice: a later table may say which rank a pid was
    for draft in merged:
        if draft.by_launcher and draft.first and draft.exit_code is not None and draft.exit_code >= 0:
            draft.kind, draft.signal = ("exit" if draft.kind == "signal" else draft.kind), None
        if draft.first or (draft.is_own and draft.kind in ("exception", "abort")):
            draft.by_launcher = False
    return [draft.finished() for draft in merged]


def _swept(drafts: list[DeathDraft]) -> list[DeathDraft]:
    """Hydra kills the others where one rank has crashed, and lists all of them alike."""
    listed = [d for d in drafts if d.text.startswith(HYDRA)]
    for writer in {d.writer for d in listed}:
        of_one = [d for d in listed if d.writer == writer]
        if any(d.signal not in _KILLS for d in of_one):
            for draft in of_one:
                if draft.signal in _KILLS:
                    draft.by_launcher, draft.first = True, False
    return drafts


def _aborted(drafts: list[DeathDraft]) -> list[DeathDraft]:
    """Where a library ended as many processes for another one's fault as a launcher then saw aborting in one stream,
    none of these aborts had a reason of its own."""
    for writer in {d.writer for d in drafts if d.is_own and d.is_collective_error and d.kind == "abort"}:
        words = [d for d in drafts if d.is_own and d.kind == "abort" and d.writer == writer and _keys(d) == ["nobody"]]
        reported = [
            d
            for d in drafts
            if d.signal == "SIGABRT" and d.writer == writer and not (d.is_own or d.by_launcher or d.is_handlers)
        ]
        if not reported or not words or not all(d.is_collective_error for d in words):
            continue
        if sum(d.num_words for d in words) >= len(reported) and min(map(_line, words)) < min(map(_line, reported)):
            for draft in reported:
                draft.is_collective_error = True
    return drafts


def _line(draft: DeathDraft) -> int:
    return draft.origin.line or 0


def _explained(drafts: list[DeathDraft]) -> list[DeathDraft]:
    """One exception of an unknown process, and one exit code behind it that nothing explains, are one end."""
    lone = [d for d in drafts if d.kind == "exception" and d.is_own and _keys(d) == ["nobody"]]
    bare = [d for d in drafts if d.kind == "exit" and _is_bad_end(d) and not d.by_launcher and not d.is_own]
    if len(lone) != 1 or len(bare) != 1:
        return drafts
    raised, ended = lone[0], bare[0]
    before = (raised.origin.line or 0) < (ended.origin.line or 0)
    is_tasks = ended.task is not None and ended.local_rank is None
    if not before or _differ(raised.node, ended.node) or (raised.is_agents and not is_tasks):
        return drafts
    if raised.is_agents:  # the number of a task that is a launcher is no rank's
        ended.rank = None
    _join(raised, ended)
    raised.is_open = False
    return [d for d in drafts if d is not ended]


def _signed(drafts: Sequence[DeathDraft]) -> list[DeathDraft]:
    """Whose last output they are, by the handler of signals that wrote right behind them in the same stream.

    Only where one process spoke and one handler: in a file of many ranks that end together it is not known.  Where some
    of these words are a library's, who lost a peer, none of the handlers' processes is accused.
    """
    handlers = [d for d in drafts if d.is_handlers and d.signal == "SIGABRT"]
    words = [d for d in drafts if d.is_own and d.kind == "abort" and d.pid is None] if handlers else []
    found = list(drafts)
    for draft in words:
        behind = [d for d in handlers if _follows(d, draft)]
        if len(behind) == 1 and sum(_follows(behind[0], other) for other in words) == 1:
            _join(behind[0], draft)
            found = [d for d in found if d is not draft]
    for handler in handlers:
        if any(other.is_collective_error and _follows(handler, other) for other in words):
            handler.is_collective_error = True
    return found


def _handled(drafts: list[DeathDraft]) -> list[DeathDraft]:
    """A handler knows the process, its launcher the rank: one end, where one of each speaks of one node and signal."""
    found = list(drafts)
    for draft in [d for d in drafts if d.is_handlers and d.rank is None and d.task is None]:
        reported = [d for d in found if d is not draft and d.pid is None and _is_of(d, draft)]
        alike = [d for d in found if d.is_handlers and d.pid != draft.pid and d.signal == draft.signal]
        if len(reported) == 1 and not any(d.host == draft.host for d in alike):
            _join(reported[0], draft)
            found = [d for d in found if d is not draft]
    return found


def _is_of(reported: DeathDraft, handled: DeathDraft) -> bool:
    names = {reported.node, reported.host} - {None}
    return reported.signal == handled.signal and handled.host in names and not reported.by_launcher


def _follows(handler: DeathDraft, words: DeathDraft) -> bool:
    distance = (handler.origin.line or 0) - (words.origin.line or 0)
    is_near = handler.writer == words.writer and 0 < distance <= _NEAR_LINES
    return is_near and not (_differ(handler.rank, words.rank) or _differ(handler.task, words.task))


def _is_bad_end(draft: DeathDraft) -> bool:
    """Whether a launcher tells a bad end: by its code, or by naming who left first without one."""
    return bool(draft.exit_code) or (draft.exit_code is None and draft.first)


def _merged(drafts: Sequence[DeathDraft]) -> list[DeathDraft]:
    found: list[DeathDraft] = []
    places: dict[object, list[int]] = {}
    for draft in drafts:
        same = {at for key in _keys(draft) for at in places.get(key, ())[-_MAX_CANDIDATES:]}
        for at in sorted(same, reverse=True):
            if _is_same(found[at], draft):
                _join(found[at], draft)
                break
        else:
            found.append(draft)
            at = len(found) - 1
        for key in _keys(found[at]):
            known = places.setdefault(key, [])
            if at not in known[-_MAX_CANDIDATES:]:
                known.append(at)
    return found


def _keys(draft: DeathDraft) -> list[object]:
    """What two statements about one process have in common, any of it."""
    keys: list[object] = [
        (name, value)
        for name, value in (("pid", draft.pid), ("rank", draft.rank), ("task", draft.task))
        if value is not None
    ]
    if draft.local_rank is not None:
        keys.append(("local rank", draft.local_rank))
    return keys or ["nobody"]


def _is_same(old: DeathDraft, new: DeathDraft) -> bool:
    if _differ(old.pid, new.pid) or _differ(old.rank, new.rank) or _differ(old.task, new.task):
        return False
    if old.is_own and new.is_own and old.is_table and _differ(old.text, new.text):
        return False  # another attempt of the same rank
    same_stream = old.writer == new.writer
    if old.pid is not None and old.pid == new.pid:
        return same_stream or not _differ(old.host, new.host)
    if old.rank is not None and old.rank == new.rank:
        return True
    if old.task is not None and old.task == new.task:
        return True
    if _differ(old.local_rank, new.local_rank):
        return False
    if old.local_rank is not None and old.local_rank == new.local_rank and same_stream:
        return True
    nameless = all(v is None for v in (old.pid, old.rank, old.local_rank, new.pid, new.rank, new.local_rank))
    return (
        nameless
        and same_stream
        and old.origin.line is not None
        and new.origin.line is not None
        and abs(new.origin.line - old.origin.line) <= _NEAR_LINES
        and {old.kind, new.kind} <= {"abort", "signal"}
        and not _differ(old.signal, new.signal)
        and not _differ(old.last_words or None, new.last_words or None)
    )


def _earlier(one: float | None, other: float | None) -> float | None:
    """The earlier time; a table's time has no fraction, so that of two in one second the later is the exact one."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other) if int(one) == int(other) else min(one, other)


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def _join(old: DeathDraft, new: DeathDraft) -> None:
    better = _KINDS.index(new.kind) > _KINDS.index(old.kind) and not (old.is_own and new.kind == "abort" and old.text)
    if better:
        old.kind = new.kind
    if (new.is_own and not old.is_own) or (new.text and not old.text):
        old.origin = new.origin
        old.text = new.text or old.text
    elif better and new.is_own:
        old.text = new.text or old.text
    for name in ("rank", "local_rank", "task", "node", "host", "pid", "signal", "exit_code", "site"):
        if getattr(old, name) is None:
            setattr(old, name, getattr(new, name))
    if new.is_table and new.exit_code is not None:
        old.exit_code, old.signal = new.exit_code, new.signal or (old.signal if new.exit_code < 0 else None)
    old.time_s = _earlier(old.time_s, new.time_s)
    if old.is_own and new.is_own and new.is_collective_error:
        old.num_words = new.num_words + (old.num_words if old.is_collective_error else 0)
    for name in _EITHER:
        setattr(old, name, getattr(old, name) or getattr(new, name))
