"""What ranks and the hub tell each other; the kind of a frame is the name of its class."""

from typing import TypeAlias

from msgspec import Struct

from allready.model import CallArguments, CallPosition, FailureCause, RankProcess, RuntimeFailure

Ranks: TypeAlias = tuple[int, ...]
"""Of a subgroup; empty: all members.  As the name of a group that is not the first one of its ranks, see `twin`."""


def twin(ranks: Ranks, number: int) -> Ranks:
    """Names one of several groups of the same ranks: the first one, 0, by its ranks alone."""
    return (*ranks, -number) if number else ranks


def ranks_of(group: Ranks) -> Ranks:
    """Of the group that has this name."""
    return group[:-1] if group and group[-1] < 0 else group


def number_of(group: Ranks) -> int:
    """Which of the groups of its ranks it is, in the order in which all of them made these; see `twin`."""
    return -group[-1] if group and group[-1] < 0 else 0


class RankHello(Struct, frozen=True, kw_only=True):
    """First frame of a rank's connection; `again`: of a process that was started in the place of one that is gone."""

    rank: int
    secret: str
    again: bool = False
    process: RankProcess = RankProcess()


class Taken(Struct, frozen=True, kw_only=True):
    """The hub's answer to a `RankHello` of a rank for which this process speaks already."""

    process: RankProcess


class Heartbeat(Struct, frozen=True, kw_only=True):
    """A sign of life."""


class Ready(Struct, frozen=True, kw_only=True):
    """This rank's main thread waits for the group that follows `epoch`.

    `anew`: its present one is unusable.  `made`: the epoch in which its group object was made; only those of one epoch
    can be formed again in place.  `store`: where the job's store is, if not where it was at the start;
    `has_lost_store`: it does not answer this rank.  `admits`: a rank that asks to join may come in here.  `late_s`: how
    long after the failure a rank is waited for that lives and let the others wait in vain; None: as long as they had
    waited.
    """

    epoch: int
    timeout_s: float
    min_ranks: int
    late_s: float | None = None
    step: int = 0
    anew: bool = False
    made: int = 0
    store: str = ""
    has_lost_store: bool = False
    admits: bool = True


class Join(Struct, frozen=True, kw_only=True):
    """This rank, which is outside, asks to be taken into a next group; `anew`, `made`, `store`: as in `Ready`."""

    timeout_s: float
    step: int = 0
    anew: bool = False
    made: int = 0
    store: str = ""


class Door(Struct, frozen=True, kw_only=True):
    """Whether the epoch may be interrupted for a rank that joins, as far as this rank is concerned."""

    epoch: int
    is_open: bool


class Vote(Struct, frozen=True, kw_only=True):
    """This rank has arrived at the agreed point `number` of the epoch, counted from 1; 0: the group is formed.

    `group`: the ranks of a subgroup, which has points of its own; empty: all members.
    """

    epoch: int
    number: int
    group: Ranks = ()


class Fail(Struct, frozen=True, kw_only=True):
    """The epoch is to fail.

    `number`: of the vote that this rank waits in, which may have passed meanwhile.  `group`: of that vote or call.
    """

    epoch: int
    cause: FailureCause
    error: str = ""
    number: int | None = None
    group: Ranks = ()


class Compare(Struct, frozen=True, kw_only=True):
    """What this rank calls as `number` of the group: asked for by `CallQuery`, or before it begins a call that it did
    not `expect`.  No `called`: it has gone on since, and what it called was what all expected.
    """

    epoch: int
    number: int
    called: CallArguments | None
    expected: CallArguments | None = None
    group: Ranks = ()


class SubgroupPosition(Struct, frozen=True, kw_only=True):
    """How far a rank came in a subgroup."""

    group: Ranks
    call: CallPosition


class BegunHere(Struct, frozen=True, kw_only=True):
    """How many operations a rank has begun of a group of torch's, by its name and, where torch says them, its ranks; or
    how many groups it has begun to make (`MAKINGS`)."""

    group: str
    ranks: Ranks
    count: int


class Plain(Struct, frozen=True, kw_only=True):
    """What a rank has begun of torch's collectives, see `plain`; `still_s`: for how long at least nothing.

    `is_inside`, `is_making`: whether a thread is inside of one, or of the making of a group, or was when looked at
    last: it may have failed just now.
    """

    begun: tuple[BegunHere, ...] = ()
    still_s: float = 0.0
    is_inside: bool = False
    is_making: bool = False


class FrozenPosition(Struct, frozen=True, kw_only=True):
    """The answer to `Freeze`: how far this rank came.  It completes no call of this epoch after it."""

    epoch: int
    call: CallPosition
    subgroups: tuple[SubgroupPosition, ...] = ()
    plain: Plain = Plain()


class Tell(Struct, frozen=True, kw_only=True):
    """Passed on to all members: where the new store is."""

    epoch: int
    text: str


class Leave(Struct, frozen=True, kw_only=True):
    """This rank ends as planned."""


class Freeze(Struct, frozen=True, kw_only=True):
    """Complete nothing more in this epoch, and say how far you are."""

    epoch: int


class Passed(Struct, frozen=True, kw_only=True):
    """All members, or all of the subgroup, voted."""

    epoch: int
    number: int
    group: Ranks = ()


class CallQuery(Struct, frozen=True, kw_only=True):
    """A rank has come to this call and did not expect it: say what you call there, at once or when you come to it."""

    epoch: int
    number: int
    group: Ranks = ()


class Fits(Struct, frozen=True, kw_only=True):
    """What the ranks call as this number fits; so did all before."""

    epoch: int
    number: int
    group: Ranks = ()


class Differ(Struct, frozen=True, kw_only=True):
    """Two ranks call something else as this number, so it fails once all have said what they call: begin nothing."""

    epoch: int
    number: int
    group: Ranks = ()


class JoinNoted(Struct, frozen=True, kw_only=True):
    """The answer to `Join`: the hub has it, and nothing that it sent before counts any more."""


class Knock(Struct, frozen=True, kw_only=True):
    """A rank outside waits to join, and a member's door is shut."""

    epoch: int


class Failed(Struct, frozen=True, kw_only=True):
    """The agreed end of an epoch."""

    failure: RuntimeFailure


class Formed(Struct, frozen=True, kw_only=True):
    """The members of a new epoch, in the order of their new ranks, and the step that each is at.

    `joined`: those that were outside before; they are at no later step than the others.  `store`: as in `Ready`;
    `opens`: it is lost, and the first member opens a new one.
    """

    epoch: int
    members: tuple[int, ...]
    steps: tuple[int, ...]
    anew: bool = False
    joined: tuple[int, ...] = ()
    store: str = ""
    opens: bool = False


class Refused(Struct, frozen=True, kw_only=True):
    """No group: fewer ranks came in time than one of them wants.  They may ask again.  `failure`: what became of those
    that are `missing`; a rank that is not is there, or still may come."""

    epoch: int
    missing: tuple[int, ...]
    min_ranks: int
    failure: RuntimeFailure


class Excluded(Struct, frozen=True, kw_only=True):
    """The others went on without this rank; `is_over`: and have ended since, one of them at least as planned."""

    epoch: int
    is_over: bool = False


FromRank: TypeAlias = Heartbeat | Ready | Join | Door | Vote | Fail | Compare | FrozenPosition | Tell | Leave
ToRank: TypeAlias = (
    Freeze | Passed | CallQuery | Fits | Differ | Failed | Formed | Refused | Excluded | JoinNoted | Knock | Tell
)
FROM_RANK: dict[str, type[FromRank]] = {
    t.__name__: t for t in (Heartbeat, Ready, Join, Door, Vote, Fail, Compare, FrozenPosition, Tell, Leave)
}
TO_RANK: dict[str, type[ToRank]] = {
    t.__name__: t
    for t in (Freeze, Passed, CallQuery, Fits, Differ, Failed, Formed, Refused, Excluded, JoinNoted, Knock, Tell)
}
