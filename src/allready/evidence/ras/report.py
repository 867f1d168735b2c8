"""The text report (NCCL 2.24 and later): tables, Errors, Warnings.

It names outliers only.  What it says of "the others" is given to a rank only where the arithmetic leaves no choice: the
size is known, every other rank is named, and exactly one number of launched operations is left.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from allready.evidence.ras.common import MAX_RANKS, VERSION, error_of_text, hash_name, operation_name
from allready.evidence.reading import RasAnswer, Tally
from allready.model import Absence, Event, GroupProgress, Origin, Position, Recorder
from allready.model.fill import said
from allready.patterns import compiled

MAX_LINES = 300_000
"""Of one report that say something; one about 10,000 ranks has a tenth of it."""

_CUDA = r"^CUDA runtime version \d+, driver version \d+$"
_ROW = (
    r"^(?P<group>\d{1,7}) +(?P<comms>\d{1,7}) +(?P<nodes>\d{1,7}) +(?P<per_node>\d{1,7}(?:-\d{1,7})?)"
    r" +(?P<size>\d{1,7}) +(?P<ranks>\d{1,9}) +(?P<status>[A-Z][A-Z,]{1,60}) +(?P<errors>[A-Z][A-Z,]{1,60})$"
)
_COMM = r"^#(\d{1,7})-(\d{1,7}) \((?:0x)?([0-9a-fA-F]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)$"
_TOP = r"^(INCOMPLETE|DEAD|TIMEOUT)$"
_PROCESS = r"^Process (\d{1,10}) on node (\S{1,255}) managing GPU"
_MISSING_FROM = r"^Missing communicator data from (\d{1,7}) (rank|job process)"
_LIST = r"^The (missing|unknown) ranks?: ([\d, -]+)$"
_DIFFERENT = r"^Communicator ranks have different (?:(\w{1,40}) )?operation counts$"
_MANY = (
    r"^(\d{1,7}) ranks (?:have (?:launched up to operation (?P<upto>\d{1,18})|(?P<none>not launched any operations)"
    r"|status (?P<status>\w{1,40}))|reported (?P<error>.{1,200}))$"
)
_RANK = (
    r"^Rank (?P<rank>\d{1,7})(?: has launched up to operation (?P<upto>\d{1,18})"
    r"|(?P<none> has not launched any operations)| has status (?P<status>\w{1,40})"
    r"| reported (?P<error>.{1,200}?))?(?: -- .*)?$"
)
_WHERE = r" managed by process (\d{1,10}) on node (\S{1,255})$"
_KNOWN = (
    r"^(Job summary|=+|Communicators\.\.\..*|Errors|Warnings|Group +Comms.*|# +in group.*|Nodes +Processes.*|per node.*"
    r"|\(total\).*|Processes +GPUs.*|per process.*|[\d ]+|The outlier nodes?:|Node \S+ running process.*"
    r"|No communicator data collected!|No connection data collected!|Gathering data about .*|obtained a result in .*"
    r"|\[could not find information on .*|Communicator ranks have different status|Initialization errors? on .*"
    r"|Asynchronous errors? on .*|Encountered \d+ communication timeout.*|\d+ job process(es are| is) considered dead.*"
    r"|Collected data about .*|Travel times .*|Minimum .*|Warning: .*|From node .*|The missing process(es)?:"
    r"|The affected connections?:|indicating that .*|Ordering of events .*)$"
)
_GONE_STATUS = {"NOCOMM", "UNKNOWN"}


class _Value(Struct):
    """Ranks that launched equally many operations: how many, and those that are named."""

    count: int
    launched: int
    ranks: set[int] = set()


class _Comm(Struct):
    """What the report says of one communicator."""

    row: int
    name: str
    incomplete: bool = False
    num_missing: int = 0
    missing: set[int] = set()
    errors: dict[int, str] = {}
    functions: dict[str, list[_Value]] = {}
    hosts: dict[int, tuple[str, int]] = {}


class _State(Struct):
    top: str = ""  # INCOMPLETE or DEAD of the whole job
    comm: _Comm | None = None
    kind: str = ""  # INCOMPLETE, ERROR or MISMATCH of `comm`
    function: str = ""
    error: str = ""
    unnamed: _Value | None = None  # what bare "Rank 3 -- ..." lines belong to
    is_gone: bool = False


class TextReport:
    """Takes the lines of one report one after another."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.answer = RasAnswer(origin=origin)
        self.events: list[Event] = []
        self.num_known = 0
        self.unknown = Tally()
        self._rows: dict[int, tuple[int, int, str]] = {}  # group -> size, communicators, status and errors
        self._comms: dict[str, _Comm] = {}
        self._silent: dict[tuple[str, int], None] = {}
        self._at = _State()

    def take(self, line: str, number: int) -> None:
        """One line without its end."""
        text = line.strip()
        if not text:
            return
        if self.num_known >= MAX_LINES:
            self.answer.problem = said("only its first {most} lines were read", most=f"{MAX_LINES:,}")
            return
        if self._header(text) or self._process(text) or (self._at.comm is not None and self._detail(text, number)):
            self.num_known += 1
        elif compiled(_KNOWN).match(text):
            self.num_known += 1
            if text.startswith("Encountered"):
                self.answer.problem = said("{text}", text=text[:200])
        else:
            self.unknown.add_unknown(text)

    def finish(self) -> RasAnswer:
        """The answer, its groups in the order of their first line."""
        dead = set(self.answer.dead)
        hosts: dict[tuple[str, int], tuple[str, int | None]] = {}
        for comm in self._comms.values():
            for rank, where in comm.hosts.items():
                hosts[comm.name, rank] = where
            self.answer.groups.append(self._group(comm, dead))
        listed = {comm.row for comm in self._comms.values()}
        for row, (size, comms, label) in self._rows.items():
            if row not in listed:
                text = f"{label}, {comms} communicators" if comms > 1 else label
                self.answer.groups.append(
                    GroupProgress(group=f"#{row}", source=Recorder.RAS, label=text, size=size, origin=self.origin)
                )
        self.answer.hosts = hosts
        return self.answer

    def _header(self, text: str) -> bool:
        if match := compiled(_ROW).match(text):
            size = int(match["size"])
            if size <= MAX_RANKS and len(self._rows) < 100_000:
                self._rows[int(match["group"])] = (size, int(match["comms"]), f"{match['status']} {match['errors']}")
        elif match := compiled(_COMM).match(text):
            name = hash_name(match.group(3))
            comm = self._comms.setdefault(name, _Comm(row=int(match.group(1)), name=name))
            comm.incomplete |= match.group(4) == "INCOMPLETE"
            self._at = _State(comm=comm, kind=match.group(4))
        elif match := compiled(_TOP).match(text):
            self._at = _State(top=match.group(1))
        else:
            return bool(compiled(_CUDA).match(text) or compiled(VERSION).search(text))
        return True

    def _process(self, text: str) -> bool:
        match = compiled(_PROCESS).match(text)
        if match is None:
            return self._at.comm is None and compiled(_MISSING_FROM).match(text) is not None
        where = (match.group(2), int(match.group(1)))
        if self._at.top == "DEAD":
            self.answer.dead.append(where)
        elif self._at.top == "INCOMPLETE":
            self._silent[where] = None
        return True

    def _detail(self, text: str, number: int) -> bool:
        at, comm = self._at, self._at.comm
        assert comm is not None
        if match := compiled(_MISSING_FROM).match(text):
            comm.num_missing = int(match.group(1))
        elif match := compiled(_LIST).match(text):
            comm.missing |= _ranks(match.group(2))
        elif match := compiled(_DIFFERENT).match(text):
            at.function = operation_name(match.group(1) or "collective")
            comm.functions.setdefault(at.function, [])
            at.unnamed, at.is_gone = None, False
        elif text == "Communicator ranks have different status":
            at.function = ""
        elif match := compiled(_MANY).match(text):
            self._many(match)
        elif match := compiled(_RANK).match(text):
            self._rank(match, text, number)
        else:
            return False
        return True

    def _many(self, match: re.Match[str]) -> None:
        at = self._at
        assert at.comm is not None
        at.unnamed, at.is_gone, at.error = None, False, ""
        if match["error"] is not None:
            at.error = error_of_text(match["error"]) or ""
        elif match["status"] is not None:
            at.is_gone = match["status"] in _GONE_STATUS
        elif at.function:
            at.unnamed = _Value(count=int(match.group(1)), launched=int(match["upto"] or 0))
            at.comm.functions[at.function].append(at.unnamed)

    def _rank(self, match: re.Match[str], text: str, number: int) -> None:
        at, rank = self._at, int(match["rank"])
        comm = at.comm
        assert comm is not None
        if where := compiled(_WHERE).search(text):
            comm.hosts[rank] = (where.group(2), int(where.group(1)))
        if match["upto"] is not None or match["none"] is not None:
            if at.function:
                value = _Value(count=1, launched=int(match["upto"] or 0), ranks={rank})
                comm.functions[at.function].append(value)
        elif match["error"] is not None or (at.error and at.kind == "ERROR"):
            error = (error_of_text(match["error"]) if match["error"] else at.error) or ""
            comm.errors[rank] = error
            self._note_error(comm, rank, error, number, text)
        elif match["status"] is not None:
            comm.missing |= {rank} if match["status"] in _GONE_STATUS else set()
        elif at.kind == "INCOMPLETE" or at.is_gone:
            comm.missing.add(rank)
        elif at.unnamed is not None and len(at.unnamed.ranks) < at.unnamed.count:
            at.unnamed.ranks.add(rank)

    def _note_error(self, comm: _Comm, rank: int, error: str, number: int, text: str) -> None:
        values = {"group": comm.name, "comm_rank": str(rank), "error": error}
        if rank in comm.hosts:
            values |= {"node": comm.hosts[rank][0], "process": str(comm.hosts[rank][1])}
        origin = Origin(source=self.origin.source, line=number)
        self.events.append(Event(signature="ras.rank_error", origin=origin, text=text[:1000], values=values))

    def _group(self, comm: _Comm, dead: set[tuple[str, int]]) -> GroupProgress:
        size = self._rows.get(comm.row, (0, 0, ""))[0]
        counts = [_launched(values, size, comm) for values in comm.functions.values()]
        positions: dict[int, Position] = {}
        if counts:
            # Only ranks whose every differing counter is known: sums of different counters do not compare.
            for rank in sorted(set.intersection(*(set(c) for c in counts)) - comm.missing):
                known = {name: c[rank] for name, c in zip(comm.functions, counts, strict=True)}
                positions[rank] = Position(
                    enqueued=sum(known.values()), counts=known, error=comm.errors.get(rank), origin=self.origin
                )
        absent = {rank: self._why(comm.hosts.get(rank), dead) for rank in sorted(comm.missing)}
        return GroupProgress(
            group=comm.name,
            source=Recorder.RAS,
            members=tuple(sorted({*positions, *absent})),
            size=size,
            positions=positions,
            absent=absent,
            origin=self.origin,
        )

    def _why(self, where: tuple[str, int] | None, dead: set[tuple[str, int]]) -> Absence:
        if where in dead:
            return Absence.DEAD
        return Absence.UNRESPONSIVE if where in self._silent else Absence.MISSING


def _launched(values: Sequence[_Value], size: int, comm: _Comm) -> dict[int, int]:
    """Rank -> operations launched, for the ranks that are named and, if only one number is left, for the rest."""
    known = {rank: value.launched for value in values for rank in value.ranks}
    open_values = [v for v in values if len(v.ranks) < v.count]
    named_missing = not comm.incomplete or len(comm.missing) >= comm.num_missing
    if len(open_values) == 1 and size and named_missing and not open_values[0].ranks:
        rest = set(range(size)) - set(known) - comm.missing
        if len(rest) == open_values[0].count:
            known |= dict.fromkeys(rest, open_values[0].launched)
    return known


def _ranks(text: str) -> set[int]:
    """`0,3,5-7`; a broken range is its two ends."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d{1,7})(?:-(\d{1,7}))?", text):
        low, high = int(first), int(last or first)
        if high >= MAX_RANKS:
            continue
        found |= set(range(low, high + 1)) if low <= high < low + 100_000 else {low, high}
    return found
