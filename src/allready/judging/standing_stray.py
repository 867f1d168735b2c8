"""Whether a running job stands because one rank left the pattern of its sends and receives."""

from allready.judging.analysis import Analysis
from allready.judging.exchanges import awaits_handle
from allready.judging.last_calls import P2P, call_of_stack
from allready.judging.live_status import same_place_s
from allready.judging.stall import WAITING
from allready.judging.stall_live import doing_in, stack_of
from allready.model import Live, StrayExchange, StrayProof
from allready.model.live import newest_epoch

STAYS_S = 2.0


def standing_stray(case: Analysis) -> StrayExchange | None:
    """Who left it, once no rank goes on; None of a job that moves, or whose group the runtime library formed again
    (torch numbers the peers anew then)."""
    live, stray = case.live, case.run.stray
    if live is None or stray is None or stray.rank not in live.ranks() or newest_epoch(live.statuses) > 1:
        return None
    return stray if _is_over(case, live, stray) else None


def _is_over(case: Analysis, live: Live, stray: StrayExchange) -> bool:
    """Whether no rank goes on: all that run wait for others, or the stray has ended well and others because of it."""
    ranks = live.ranks()
    is_through = ranks[stray.rank].is_gone and ranks[stray.rank].exit_code == 0
    if ranks[stray.rank].is_gone != is_through or (stray.proof is StrayProof.NUMBERS and not is_through):
        return False
    living = [r for r, s in ranks.items() if not s.is_gone]
    failed = {d.rank for d in case.run.deaths if d.is_collective_error}
    if any(s.is_gone and s.exit_code != 0 and r not in failed for r, s in ranks.items()):
        return False
    if not living:
        return bool(failed)
    if any(r in stray.met and _is_in_exchange(case, live, r) for r in living):
        return False  # the network keeps its data: then nothing shows that the program is wrong
    return live.since_s is not None and all(_waits(case, live, r) for r in living)


def _waits(case: Analysis, live: Live, rank: int) -> bool:
    doing = doing_in(live, case.run, live.ranks()[rank])
    return doing in WAITING and same_place_s(live, rank) >= STAYS_S


def _is_in_exchange(case: Analysis, live: Live, rank: int) -> bool:
    """Whether it waits in a send, a receive or for the handle of one."""
    stack = stack_of(case.run, rank)
    return stack is not None and (call_of_stack(stack).name in P2P or awaits_handle(live.ranks()[rank], stack))
