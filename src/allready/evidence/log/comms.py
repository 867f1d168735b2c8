"""The communicators of one process, from NCCL's life lines (Init, layout, Destroy, Abort) of any version."""

from collections.abc import Mapping

from msgspec import Struct

from allready.model import CommRecord
from allready.patterns import compiled

MAX_COMMS = 20_000

_COMM = r"(?:\[Rank \d+\] )?(?:\w{1,60} )?comm (0x[0-9a-fA-F]{1,16}) rank (\d{1,7}) n[rR]anks (\d{1,7})\b(.*)$"
_STATE = r"- ?(Init|Destroy|Abort|Revoke|Finalize)(?: (START|COMPLETE)|\b)"
_PAIR = r"(\w+) (-?(?:0x)?[0-9a-fA-F]+|0x[0-9a-fA-F]+)(?=[\s-]|$)"


class Draft(Struct):
    """A `CommRecord` in the making, and what of the process stands in the same line."""

    comm: str
    rank: int
    nranks: int
    comm_id: str | None = None
    parent: str | None = None
    split_count: int | None = None
    color: str | None = None
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    bus_id: str | None = None
    init_started: bool = False
    init_completed: bool = False
    destroyed: bool = False
    aborted: bool = False
    started_s: float | None = None
    completed_s: float | None = None

    def record(self) -> CommRecord:
        fields = {name: getattr(self, name) for name in CommRecord.__struct_fields__}
        return CommRecord(**fields | {"init_started": self.init_started or self.init_completed})


class Comms:
    """All communicators of one process in the order of their first line."""

    def __init__(self) -> None:
        self.layout: dict[str, tuple[int, int, int]] = {}  # pointer -> nodes, ranks on this node, rank on this node
        self._drafts: list[Draft] = []
        self._open: dict[str, Draft] = {}  # pointer -> the latest with it
        self._starting: dict[int | None, str] = {}  # thread -> the communicator it is initialising
        self._burst_start: int | None = None
        self._bursts: list[int] = []

    def feed(self, text: str, *, tid: int | None, time_s: float | None) -> bool:
        """Take a life line in; False when it is none."""
        match = compiled(_COMM).match(text)
        if match is None:
            return False
        comm, rank, nranks, tail = match[1], int(match[2]), int(match[3]), match[4]
        state = compiled(_STATE).search(tail)
        pairs = dict(compiled(_PAIR).findall(tail))
        draft = self._open.get(comm)
        is_new = draft is None or (draft.rank, draft.nranks) != (rank, nranks)
        if state is not None and state[1] == "Init" and draft is not None:
            is_new = is_new or draft.destroyed or draft.aborted or (draft.init_completed and state[2] == "START")
        if is_new or draft is None:
            if len(self._drafts) >= MAX_COMMS:
                return True
            draft = Draft(comm, rank, nranks)
            self._drafts.append(draft)
            self._open[comm] = draft
        self._fill(draft, pairs)
        if {"nNodes", "localRanks", "localRank"} <= pairs.keys():
            self.layout[comm] = (int(pairs["nNodes"]), int(pairs["localRanks"]), int(pairs["localRank"]))
        if state is not None:
            self._move(draft, state[1], state[2], tid, time_s)
        return True

    @staticmethod
    def _fill(draft: Draft, pairs: Mapping[str, str]) -> None:
        draft.comm_id = pairs.get("commId", draft.comm_id)
        draft.parent = pairs.get("parent", draft.parent)
        draft.color = pairs.get("color", draft.color)
        draft.bus_id = pairs.get("busId", draft.bus_id)
        count = pairs.get("splitCount", pairs.get("childCount"))
        draft.split_count = _int(count, draft.split_count)
        draft.cuda_dev = _int(pairs.get("cudaDev"), draft.cuda_dev)
        draft.nvml_dev = _int(pairs.get("nvmlDev"), draft.nvml_dev)

    def _move(self, draft: Draft, what: str, step: str | None, tid: int | None, time_s: float | None) -> None:
        if what == "Init" and step == "START":
            draft.init_started, draft.started_s = True, time_s
            self._starting[tid] = draft.comm
        elif what == "Init" and step == "COMPLETE":
            draft.init_completed, draft.completed_s = True, time_s
            self._starting.pop(tid, None)
        elif what in ("Destroy", "Finalize"):
            draft.destroyed = draft.destroyed or step == "COMPLETE"
        else:
            draft.aborted = True

    def initialising(self, tid: int | None) -> str | None:
        """The communicator whose Init this thread is in."""
        return self._starting.get(tid)

    def burst(self, line: int) -> int:
        """First line of the connections that are being made now, outside any Init."""
        if self._burst_start is None:
            self._burst_start = line
            self._bursts.append(line)
            del self._bursts[:-MAX_COMMS]
        return self._burst_start

    def end_burst(self) -> None:
        """The connections of this algorithm are made."""
        self._burst_start = None

    def connecting(self, start: int, first_operations: Mapping[str, int]) -> str | None:
        """Whose connections began at line `start`: the only communicator, or the one whose first use came just before.

        From 2.22 on NCCL connects at the first use; when another communicator was first used in between, or at
        a later use, it is not known.
        """
        if len(self._open) == 1:
            return next(iter(self._open))
        before = [(line, comm) for comm, line in first_operations.items() if line < start]
        if not before:
            return None
        line, comm = max(before)
        return None if any(line < other < start for other in self._bursts) else comm

    def world(self) -> Draft | None:
        """The largest communicator that is no child of another: its rank is the process's."""
        best: Draft | None = None
        for draft in self._drafts:
            if draft.parent is None and (best is None or draft.nranks > best.nranks):
                best = draft
        return best

    def records(self) -> tuple[CommRecord, ...]:
        return tuple(draft.record() for draft in self._drafts)


def _int(text: str | None, otherwise: int | None) -> int | None:
    try:
        return otherwise if text is None else int(text, 0)
    except ValueError:
        return otherwise
