"""For whom ranks wait in a send or a receive, by their frames: no recorder of Gloo has these calls."""

from collections.abc import Mapping

from msgspec import Struct

from allready.judging.last_calls import P2P, RECEIVES, call_of_stack
from allready.model import CallSite, ProcessStack, RankStatus, RunEvidence


class Half(Struct, frozen=True):
    """What one rank waits in: the call, for whom, and the line of the program."""

    call: str
    peer: int
    site: CallSite | None


def halves_of(run: RunEvidence) -> dict[int, Half]:
    """Of each rank whose main thread waits in the group of all for a rank that its frames name."""
    found = {}
    for stack in run.stacks:
        main = next((t for t in stack.threads if t.is_main), None)
        if stack.role != "rank" or stack.rank is None or main is None or main.peer is None or main.has_peer_group:
            continue
        call = call_of_stack(stack)
        if call.name in P2P:
            found[stack.rank] = Half(call.name, main.peer, call.site)
    return found


def awaits_handle(status: RankStatus, stack: ProcessStack | None) -> bool:
    """Whether it waits for the handle of an operation that no record has (`isend`, `batch_isend_irecv`): no frame shows
    for whom."""
    is_recorded = any(mark.waiting_s is not None for mark in status.groups)
    is_waiting = status.framework == "torch" and status.phase == "communicating" and not is_recorded
    return is_waiting and stack is not None and not call_of_stack(stack).name


def circle_in(halves: Mapping[int, Half]) -> tuple[int, ...]:
    """The ranks of the first circle in which each waits for the next, all in the same half; empty where there is none.

    Who receives while its peer sends is about to go on.
    """
    for first in sorted(halves):
        path = [first]
        while (peer := halves[path[-1]].peer) in halves and peer not in path:
            path.append(peer)
        if peer == first and len(path) > 1 and len({halves[r].call in RECEIVES for r in path}) == 1:
            return tuple(path)
    return ()
