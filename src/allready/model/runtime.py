"""What the ranks of a job knew when a collective of the runtime library failed: the evidence, before anyone judges."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

REJOIN = "ALLREADY_REJOIN"
"""Variable of a rank that a launcher has started again while the others go on."""
OVER = "allready/over"
"""Key of the job's store that is there once a rank has ended as planned."""


MAKINGS = "makings"
"""In place of a group's name: of operations that are the making of groups, which all ranks do together."""


class FailureCause(StrEnum):
    """What made a rank, or the hub, ask for the failure."""

    DEADLINE = "deadline"  # a call did not complete in time
    BACKEND = "backend"  # torch's backend raised in a call
    RAISED = "raised"  # the rank's own code raised, outside of a call
    DIED = "died"  # the rank's connection broke without a goodbye
    LEFT = "left"  # the rank said goodbye while others still called
    ARGUMENTS = "arguments"  # the ranks made calls that do not fit, and none of them was carried out
    FORMING = "forming"  # the group could not be formed again
    VERDICT = "verdict"  # the launcher's verdict says that the job hangs, and nothing else limits the wait
    JOINS = "joins"  # nothing failed: a rank that was outside comes in


class MemberState(StrEnum):
    """What is known of a rank at the failure."""

    ANSWERED = "answered"
    SILENT = "silent"  # connected, but nothing came from it in time
    DIED = "died"
    LEFT = "left"
    ABSENT = "absent"  # it never came to the job
    AWAY = "away"  # alive, and it did not come to form the group


class CallPosition(Struct, frozen=True, kw_only=True):
    """How far a rank had come in an epoch; calls are numbered from 1 in the order of each rank.

    A rank may have entered several calls that it has not completed, and wait for the first of them, or do other things.
    """

    entered: int = 0
    completed: int = 0
    operation: str = ""  # of the call after the last completed one, or else of the last
    waited_s: float | None = None  # in that call, where the rank waits for it

    @property
    def reached(self) -> int:
        """The call that it waits in, or the last that it has completed."""
        return self.completed + (self.waited_s is not None)


class CallArguments(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call is, as far as it has to be the same on all ranks.

    `root`: by its number at the start; while the call runs, by that in the default group.  `chunk_bytes`: of a call
    that goes out in parts.  `sends`, `receives`: of an all_to_all, elements for and from each rank of the group, the
    lowest first, one number where they are all equal; these have to fit in pairs.
    """

    operation: str
    dtype: str = ""
    num_elements: int | None = None
    redop: str = ""
    root: int | None = None
    chunk_bytes: int | None = None
    confirm: bool = False
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()

    @property
    def shared(self) -> "CallArguments":
        """Without what differs between ranks that do it right."""
        return replace(self, sends=(), receives=()) if self.sends or self.receives else self


class Misfit(Struct, frozen=True, kw_only=True):
    """Elements that one rank sends another in an all_to_all, and how many that one expects of it.  Global ranks."""

    sender: int
    receiver: int
    num_sent: int
    num_expected: int


class RankProcess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a rank runs, as its process says."""

    host: Annotated[str, Meta(max_length=255)] = ""
    pid: int | None = None


class RankAtFailure(Struct, frozen=True, kw_only=True):
    """One rank; `call` where it answered, in the group that failed.  `rank` is the number that it had at the start.

    `called`: where calls did not fit, the one of this rank.  `still_s`: for how long it had begun no operation of
    torch's; `is_inside`: whether it was inside of one, or of a backward pass; `is_making`: of the making of a group.
    """

    rank: int
    state: MemberState
    process: RankProcess = RankProcess()
    call: CallPosition | None = None
    cause: FailureCause | None = None  # what it reported itself
    error: str = ""
    called: CallArguments | None = None
    still_s: float = 0.0
    is_inside: bool = False
    is_making: bool = False


class Begun(Struct, frozen=True, kw_only=True):
    """How many operations of a group of torch's its ranks have begun, plain ones and those of safe calls.

    `group`: torch's name, or `MAKINGS`.  `counts`: by rank, of those that answered.
    """

    group: str
    counts: dict[int, int]

    def ahead(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Those that have begun more than any of these, of which at least one is in the group."""
        most = max(self.counts[r] for r in ranks if r in self.counts)
        return tuple(r for r, count in self.counts.items() if count > most)


class GroupVoid(Struct, frozen=True, kw_only=True):
    """Of a group, by its ranks, none for the default group: the first call that counts on none of them.

    `twin`: of several groups of the same ranks the first one made is 0.
    """

    group: tuple[int, ...]
    first_void: int
    twin: int = 0


class RuntimeFailure(Struct, frozen=True, kw_only=True):
    """One failure, the same on every rank that survives it.

    `group`: the subgroup whose call failed, by its ranks; empty: the default group, or no call.  `twin`: of several
    groups of these ranks the first one made is 0.
    `first_void`: the first call of that group whose result counts on no rank, although single ranks may have completed
    it; None where no rank answered.  `voids`: the same for every group, of very many for those that a record has room
    for.  `ranks`: all members, by rank.  `time`: by the hub's clock, ISO-8601.  `misfits`: of an all_to_all whose
    splits do not fit, some of the pairs; `number`: of the call that did not fit.  `begun`: of groups of torch's in
    which some ranks have begun more than others.
    """

    epoch: int
    cause: FailureCause
    reporter: int | None
    ranks: tuple[RankAtFailure, ...]
    first_void: int | None = None
    group: tuple[int, ...] = ()
    twin: int = 0
    voids: tuple[GroupVoid, ...] = ()
    time: str = ""
    after_s: float = 0.0  # from the first report to the decision
    number: int | None = None
    misfits: tuple[Misfit, ...] = ()
    begun: tuple[Begun, ...] = ()

    @property
    def survivors(self) -> tuple[int, ...]:
        """Ranks that answered."""
        return tuple(r.rank for r in self.ranks if r.state is MemberState.ANSWERED)

    @property
    def furthest(self) -> int:
        """The last call that any rank waits in or has completed; 0 where there is none."""
        return max((r.call.reached for r in self.ranks if r.call is not None), default=0)

    @property
    def behind(self) -> tuple[RankAtFailure, ...]:
        """Ranks that answered, and have not entered the call that others wait in."""
        last = self.furthest
        return tuple(r for r in self.ranks if r.call is not None and r.call.entered < last)

    @property
    def is_lone(self) -> bool:
        """Whether no rank died, left, raised or is silent."""
        return all(r.state is MemberState.ANSWERED and r.cause is not FailureCause.RAISED for r in self.ranks)

    @property
    def waiting(self) -> tuple[RankAtFailure, ...]:
        """Ranks that wait in the last call that any rank has come to."""
        last = self.furthest
        return tuple(
            r for r in self.ranks if r.call is not None and r.call.waited_s is not None and r.call.reached == last
        )
