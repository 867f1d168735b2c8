"""The next group of a job, agreed with the hub: who is in it, and when all of them have it."""

import time
from dataclasses import dataclass

from msgspec import Struct

from allready.model import FailureCause
from allready.runtime import messages as m
from allready.runtime.agreement import FREEZE_S
from allready.runtime.failures import CollectiveFailed, HubLost, RankExcluded, RecoveryRefused
from allready.runtime.group import FORM
from allready.runtime.hang_watch import set_formed
from allready.runtime.meeting import end_with_the_others
from allready.runtime.session import Session


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The group that goes on, the same on every rank but for `rank`.

    `members`: the numbers that the ranks had at the start of the job, in the order of their new ranks.  `steps`: what
    each of them gave `recover`, in the same order.  `source`: the new rank that is furthest, whose state the others may
    take.  `is_same_group`: the group object was kept, so DDP goes on with the same object; otherwise it is to be made
    anew.  `failure`: why; None in a process that was started again.  `joined`: those of `members` that were outside of
    the group before: they are at no later step than the others, and never the `source`.
    """

    rank: int
    world_size: int
    members: tuple[int, ...]
    steps: tuple[int, ...]
    source: int
    is_same_group: bool
    failure: CollectiveFailed | None
    joined: tuple[int, ...] = ()


class Wish(Struct, frozen=True, kw_only=True):
    """What one rank wants of the next group; `admits`: ranks that ask to join may come in.  `late_s`: as in `Ready`."""

    min_ranks: int
    step: int
    until_s: float
    rejoins: bool = False
    admits: bool = True
    late_s: float | None = None

    @property
    def left_s(self) -> float:
        """Time that is left."""
        return max(0.0, self.until_s - time.monotonic())


def agreed(session: Session, cause: FailureCause, error: BaseException | None) -> CollectiveFailed:
    """The failure of this epoch; this rank asks for it where there is none yet."""
    if session.member.is_open:
        text = "" if error is None else f"{type(error).__name__}: {error}"
        try:
            session.fail(cause, error=text, operation="recover")
        except CollectiveFailed as failure:
            found = failure
    else:
        found = session.await_failure("recover")
    if not isinstance(found, HubLost | RankExcluded):
        return found
    raise found from error


def next_group(session: Session, wish: Wish, failure: CollectiveFailed | None) -> Recovery:
    """Gather for the next epoch, or ask to join it, and form its group until the hub knows that all members have it."""
    if not session.group.release():
        raise session.lose("recover", why="NCCL does not end here, so this process cannot form another group")
    if session.is_outside and not wish.rejoins:
        raise RankExcluded(None, operation="recover", text="the other ranks went on without this one")
    formed = _ask_in(session, wish) if session.is_outside else _gather(session, wish)
    try:
        _form(session, formed)
    except CollectiveFailed:
        raise
    except Exception as error:  # torch's, of many classes
        raise agreed(session, FailureCause.FORMING, error) from error
    _confirm_formed(session)
    set_formed(formed.epoch, formed.members)
    old = [step for rank, step in zip(formed.members, formed.steps, strict=True) if rank not in formed.joined]
    furthest = max(old)
    places = zip(formed.members, formed.steps, strict=True)
    source = next(n for n, (rank, step) in enumerate(places) if step == furthest and rank not in formed.joined)
    return Recovery(
        rank=formed.members.index(session.rank),
        world_size=len(formed.members),
        members=formed.members,
        steps=formed.steps,
        source=source,
        is_same_group=session.group.is_same,
        failure=failure,
        joined=formed.joined,
    )


def _gather(session: Session, wish: Wish) -> m.Formed:
    """Of those that are in the job, all that come in time."""
    member = session.member
    with session.lock:
        epoch = member.ask()
    limit_s = wish.left_s
    session.send(
        m.Ready(
            epoch=epoch,
            timeout_s=limit_s,
            min_ranks=wish.min_ranks,
            step=wish.step,
            anew=session.group.is_spoilt(),
            made=session.group.made,
            store=session.group.store_text,
            has_lost_store=session.group.has_lost_store(),
            admits=wish.admits,
            late_s=wish.late_s,
        )
    )
    session.await_hub(lambda: member.epoch > epoch or member.refused is not None, limit_s + FREEZE_S)
    with session.lock:
        formed, refused = member.formed, member.refused
    if refused is not None:
        ranks = ", ".join(map(str, refused.missing))
        text = f"fewer than {refused.min_ranks} ranks came in time; missing: rank {ranks}"
        raise RecoveryRefused(refused.missing, text=text, failure=refused.failure)
    if formed is not None and formed.epoch > epoch:
        return formed
    if member.excluded is not None:
        raise RankExcluded(None, operation="recover", text="the other ranks went on without this one")
    raise session.lose("recover")


def _ask_in(session: Session, wish: Wish) -> m.Formed:
    """Ask those that went on without this rank to take it in."""
    member, group = session.member, session.group
    # A group that is kept goes on with its numbers of operations, of which a rank that was outside has missed some:
    # code that compares the ranks' records, as the agent does, would take it for out of step.
    anew = group.is_spoilt() or not group.was_formed or session.is_watched
    with session.lock:
        epoch = member.ask_in()
    limit_s = wish.left_s
    session.send(m.Join(timeout_s=limit_s, step=wish.step, anew=anew, made=group.made, store=group.store_text))
    session.await_hub(lambda: member.epoch > epoch, limit_s)
    with session.lock:
        formed = member.formed
    if formed is not None and formed.epoch > epoch:
        return formed
    if member.excluded is not None:
        if member.is_over:
            end_with_the_others()
        raise RankExcluded(
            None, operation="recover", text=f"the others are gone, or did not take this rank in within {limit_s:.1f} s"
        )
    raise session.lose("recover")


def _form(session: Session, formed: m.Formed) -> None:
    text = formed.store
    if formed.opens or session.group.needs_store(text, formed.members):
        if formed.members[0] == session.rank:
            session.send(m.Tell(epoch=formed.epoch, text=session.group.open_store()))
        session.wait(
            lambda: session.member.text_received is not None or session.member.failure is not None, FORM.total_seconds()
        )
        text_received = session.member.text_received
        if text_received is None:
            raise TimeoutError("no rank has opened a new store")
        text = text_received

    def is_over() -> bool:
        return not session.member.is_open

    session.group.use_store(text, is_over)
    session.group.form(formed.epoch, formed.members, anew=formed.anew, is_over=is_over)


def _confirm_formed(session: Session) -> None:
    with session.lock:
        vote = session.member.vote() if session.member.is_open else None
    if vote is None:
        raise session.await_failure("recover")
    if session.is_shut:
        session.send_door()  # before the vote, so that no epoch is interrupted that should not be
    session.send(vote)
    world = session.member.world
    session.wait(lambda: world.passed >= 0 or session.member.failure is not None, FORM.total_seconds())
    if world.passed < 0:
        session.fail(FailureCause.FORMING, operation="recover", vote=0)
