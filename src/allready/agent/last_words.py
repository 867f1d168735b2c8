"""Exceptions that had ended the scripts of ranks when a signal came to their job: what these ranks printed of them.

An interpreter takes seconds to end after an exception, and others wait for its rank no longer than usual: nothing looks
wrong yet.  Its beacon has noted when the script was left, which tells that from what the shutdown made ranks raise.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from allready.judging.interruption import UNSEEN_S, Interruption
from allready.model import NodeEvidence, NodeStatus, ProcessState, RankEvidence, RankStatus
from allready.model.live import outsiders


def raised_until_s(interruption: Interruption, statuses: Collection[NodeStatus]) -> float:
    """Until when what a rank raised was no consequence of the shutdown, by node 0's clock.

    Args:
        statuses: the newest of every node.
    """
    others = [replace(s, ranks=tuple(r for r in s.ranks if r.raised is None)) for s in statuses]
    began_s = interruption.began_s(others)
    is_sure = began_s == interruption.time_s
    for status in statuses:
        for rank in status.ranks:
            if rank.handling:
                seen_s = rank.handling_after_s
                began_s = min(began_s, float("-inf") if seen_s is None else status.by_node_0(seen_s))
            # It may have got the signal before us and lived on; of SIGINT, which Python makes an exception, it is
            # known what came of that.
            is_sure = is_sure and (interruption.signal == "SIGINT" or interruption.signal not in rank.outlives)
    return began_s if is_sure else began_s - UNSEEN_S


def raised_before(
    answers: Iterable[NodeEvidence], known: Mapping[int, NodeStatus], until_s: float
) -> list[NodeEvidence]:
    """The answers of those nodes on which a rank had raised before `until_s`, and of these ranks only.

    The answers show the moment before: such a rank is about to end, or had ended, and all others are as they were,
    or as they began where they had begun just then.

    Args:
        known: the newest statuses from before the signal.  Ranks without which the others had gone on explain nothing.
        until_s: as `raised_until_s` has it.
    """
    outside = outsiders(known)
    found = []
    for answer in answers:
        status = known.get(answer.node_rank) or _as_begun(answer.status)
        were = {r.rank: r for r in status.ranks if r.rank not in outside}
        left = {
            one.rank: _ending(were[one.rank], one.status)
            for one in answer.ranks
            if one.rank in were
            and one.status.pid == were[one.rank].pid
            and one.status.raised is not None
            and answer.status.by_node_0(one.status.raised.at_s) < until_s
        }
        if left:
            ranks = tuple(replace(one, status=left[one.rank]) for one in answer.ranks if one.rank in left)
            before = replace(status, ranks=tuple(left.get(r.rank, r) for r in status.ranks))
            found.append(replace(answer, status=before, ranks=ranks))
    return found


def _as_begun(status: NodeStatus) -> NodeStatus:
    """Without the ends of ranks."""
    ranks = (replace(r, exit_code=None, signal=None, ended_s=None) for r in status.ranks)
    return replace(status, ranks=tuple(replace(r, process_state=ProcessState.SLEEPING) for r in ranks))


def _ending(was: RankStatus, now: RankStatus) -> RankStatus:
    if was.is_gone:
        return replace(was, raised=now.raised)
    return replace(was, phase="ending", raised=now.raised, site=now.site or was.site, framework=now.framework)


def without_later(answer: NodeEvidence, until_s: float) -> NodeEvidence:
    """An answer without the last words of ranks that raised after `until_s`."""
    ranks = tuple(
        replace(one, log_tail="")
        if one.status.raised is not None and answer.status.by_node_0(one.status.raised.at_s) >= until_s
        else one
        for one in answer.ranks
    )
    return replace(answer, ranks=ranks)


def with_words_only(answers: Sequence[NodeEvidence]) -> list[NodeEvidence]:
    """The answers without ranks that have not printed yet what they raised."""
    found = []
    for answer in answers:
        ranks = tuple(one for one in answer.ranks if one.rank in _worded(answer))
        if ranks:
            found.append(replace(answer, ranks=ranks))
    return found


def are_whole(answers: Iterable[NodeEvidence]) -> bool:
    """Whether every rank in the answers has printed what it raised."""
    return all(_worded(answer) == {one.rank for one in answer.ranks} for answer in answers)


def _worded(answer: NodeEvidence) -> set[int]:
    """Ranks whose last words tell the exception that their beacon noted."""
    from allready.live.monitor.readings import readings_of  # loads all readers

    told = [d for reading in readings_of(answer) for d in reading.deaths]
    return {
        one.rank
        for one in answer.ranks
        if one.status.raised is not None
        and any(d.rank == one.rank and d.error == one.status.raised.error for d in told)
    }


def joined(answer: NodeEvidence, words: NodeEvidence) -> NodeEvidence:
    """An answer to another question, with what ranks printed that had raised."""
    left = {one.rank: one for one in words.ranks}
    ranks: list[RankEvidence] = []
    for one in answer.ranks:
        said = left.get(one.rank)
        ranks.append(one if said is None else replace(one, status=said.status, log_tail=said.log_tail))
    return replace(answer, status=words.status, ranks=tuple(ranks))
