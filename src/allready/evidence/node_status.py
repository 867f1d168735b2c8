"""`status.json` of a node's evidence: how its ranks stood and ended, as their agent saw it -> `Reading`."""

import msgspec
from msgspec import Struct

from allready.evidence.reading import Reading
from allready.model import Death, NodeStatus, Origin, ProcessRecord, RankStatus, SourceRecord
from allready.model.events import troubled
from allready.model.fill import said
from allready.model.process import OUT_OF_MEMORY


class _Saved(Struct, frozen=True):
    """What is read of a node's evidence: the shape of the rest may be that of another release."""

    node_rank: int
    number: int
    status: NodeStatus


_decoder = msgspec.json.Decoder(_Saved)


def is_node_status(head: bytes) -> bool:
    """Whether a JSON text that begins so is one: its first keys are those of `NodeEvidence`."""
    start = head[:512]
    return all(key in start for key in (b'"node_rank"', b'"number"', b'"status"')) and b'"process_state"' in head


def read_node_status(data: bytes, label: str) -> Reading:
    """The ranks' processes, and a death for each that ended badly.

    A damaged file gives an empty reading whose record names the damage.
    """
    record = SourceRecord(path=label, kind="node status", num_understood=1)
    try:
        evidence = _decoder.decode(data)
    except msgspec.DecodeError as error:
        damage = said("not a node's status: {error}", error=str(error)[:200])
        return Reading(source=troubled(SourceRecord(path=label, kind="node status"), damage))
    host, ranks = evidence.status.name or None, evidence.status.ranks
    ends = [r.ended_s for r in ranks if _is_bad(r) and r.ended_s is not None]
    first_s = min(ends, default=None)
    return Reading(
        source=record,
        processes=[
            ProcessRecord(
                host=host,
                pid=r.pid,
                rank=r.rank,
                local_rank=r.local_rank,
                node=f"node{evidence.node_rank}",
                sources=(label,),
                last_time_s=r.ended_s,
            )
            for r in ranks
        ],
        deaths=[_death(r, evidence, label, first_s) for r in ranks if _is_bad(r)],
    )


def _is_bad(rank: RankStatus) -> bool:
    return bool(rank.signal or rank.exit_code or rank.oom_killed)


def _death(rank: RankStatus, evidence: _Saved, label: str, first_s: float | None) -> Death:
    host, node = evidence.status.name or None, f"node{evidence.node_rank}"
    is_later = first_s is not None and rank.ended_s is not None and rank.ended_s > first_s
    return Death(
        kind="oom" if rank.oom_killed else "signal" if rank.signal else "exit",
        origin=Origin(source=label, host=host, pid=rank.pid, rank=rank.rank, local_rank=rank.local_rank, node=node),
        rank=rank.rank,
        local_rank=rank.local_rank,
        node=node,
        host=host,
        pid=rank.pid,
        signal=rank.signal,
        exit_code=rank.exit_code,
        text=OUT_OF_MEMORY if rank.oom_killed else "",
        time_s=rank.ended_s,
        # The agent sends SIGTERM to the others once a rank of its node failed.
        by_launcher=rank.signal == "SIGTERM" and is_later,
    )
