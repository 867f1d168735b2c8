"""Dumps of backends whose recorder a hook of torch writes (nccl2 and others from 2.15), composed from its format.

Such a recorder knows `scheduled` and `completed` alone, numbers operations of all kinds from 0 in `op_id` and in
`pg_status`, and collectives from 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from allready.evidence.flight.names import operation_name
from allready.live.monitor.progress import shifts_of
from allready.live.node.rings import RingPace
from tests.cases import cases
from tests.evidence.flight.dialect import torch_pickle
from tests.evidence.flight.make import dump, entry, joined, loaded

CALLS = ("nccl2:all_reduce", "nccl2:_all_gather_base", "nccl2:all_reduce")


def played(calls: Sequence[str | tuple[str, int]], pending: int = 0, **more: Any) -> dict[str, Any]:
    """A rank's dump: the calls in their order, the last `pending` not completed."""
    entries, seq, p2p = [], 0, 0
    for op_id, call in enumerate(calls):
        name, size = call if isinstance(call, tuple) else (call, 1024)
        is_p2p = ":send" in name or ":recv" in name
        seq, p2p = seq + (not is_p2p), p2p + is_p2p
        state = "scheduled" if op_id >= len(calls) - pending else "completed"
        numbers = {"collective_seq_id": seq, "p2p_seq_id": p2p, "op_id": op_id}
        entries.append(entry(op_id + 1, name, size=size, state=state) | numbers)
    status = {"0": {
        "last_enqueued_collective": len(calls) - 1, "last_started_collective": -1,
        "last_completed_collective": len(calls) - pending - 1,
    }}  # fmt: skip
    return dump(entries, pg_status=status, **more)


@cases(
    ("recorded_name", "expected"),
    [
        ("nccl2:all_to_all_single", ("all_to_all", "nccl2", None, None)),
        ("nccl2:_all_gather_base", ("all_gather", "nccl2", None, None)),
        ("nccl-lazy:send 1->2", ("send", "nccl-lazy", 1, 2)),
        ("nccl2:recv 3<-?", ("recv", "nccl2", None, 3)),
        ("c10d:barrier", ("barrier", "c10d", None, None)),
    ],
)
def test_names_are_read(recorded_name: str, expected: tuple[object, ...]) -> None:
    assert operation_name(recorded_name) == expected


def test_the_status_counts_from_zero() -> None:
    found = loaded(played(CALLS, pending=1))
    assert (found.backend, found.status["0"], found.completes_by_retirement) == ("nccl2", (3, None, 2), False)
    silent = loaded(played(CALLS, pending=0) | {"entries": []})  # nothing tells its backend
    assert silent.status["0"][0] == 2


STOPPED = {0: (CALLS, 1), 1: (CALLS, 1), 2: (CALLS[:2], 0), 3: (CALLS, 1)}
LEFT_OUT = {0: (CALLS, 1), 1: (CALLS, 1), 2: (CALLS[:1] + CALLS[2:], 0), 3: (CALLS, 1)}


def test_who_did_not_come_is_named_by_the_dump_of_its_beacon() -> None:
    """torch writes no dump on a rank that detects nothing; the beacon does."""
    found = joined({rank: played(calls, pending) for rank, (calls, pending) in STOPPED.items()})
    assert found.roots == (2,)


def test_without_its_dump_the_rank_that_did_not_come_is_told_as_unseen() -> None:
    made = {rank: played(calls, pending) for rank, (calls, pending) in STOPPED.items() if rank != 2}
    assert joined(made).roots == (2,)


@pytest.mark.parametrize(
    ("odd", "kinds"),
    [
        (("nccl2:all_reduce", "nccl2:all_reduce", "nccl2:all_reduce"), {"name"}),
        ((CALLS[0], CALLS[1], ("nccl2:all_reduce", 512)), {"size"}),
    ],
)
def test_ranks_that_differ_are_found(odd: Sequence[str | tuple[str, int]], kinds: set[str]) -> None:
    found = joined({rank: played(odd if rank == 2 else CALLS, 1) for rank in range(4)})
    assert {m.kind for m in found.mismatches} & kinds or found.lags
    assert all(2 in {r for ranks in [m.by_rank] for r in ranks} for m in found.mismatches)


def test_a_receive_from_any_rank_accuses_nobody() -> None:
    """Which send it took is not recorded, so a send into that rank cannot be missed there."""
    sends = ("nccl2:all_reduce", "nccl2:send 0->1", "nccl2:all_reduce")
    made: Mapping[int, Mapping[str, Any]] = {
        0: played(sends, 2, members=(0, 1)),
        1: played(("nccl2:all_reduce", "nccl2:recv 1<-?", "nccl2:all_reduce"), 2, members=(0, 1)),
    }
    found = joined(made)
    assert found.roots == ()
    assert not any(" send " in g.group for g in found.progress)
    named = joined({0: made[0], 1: played(("nccl2:all_reduce", "nccl2:all_reduce"), 1, members=(0, 1))})
    assert named.roots == (1,)


def test_arguments_of_the_beacon_are_found_by_the_count_of_all_operations() -> None:
    calls = ("nccl2:send 0->1", "nccl2:broadcast", "nccl2:broadcast")
    rows = [("0", 1, "broadcast", 3, None, None), ("0", 2, "broadcast", 2, None, None)]
    found = loaded(played(calls, arguments=[list(row) for row in rows]))
    ring = found.rings["0"]
    assert [(ring.seq[i], found.shapes[ring.shape[i]].root) for i in range(3)] == [(0, None), (1, 3), (2, 2)]


def test_live_rings_count_and_hold_back_as_the_recorder_does() -> None:
    import json

    made = played(("nccl2:send 0->1", *CALLS), 1)
    for number, one in enumerate(made["entries"]):
        one["frames"], one["record_id"] = [], number
    text = json.dumps(made, separators=(",", ":"), sort_keys=True)
    assert shifts_of(text) == {"0": 1}
    assert shifts_of(text.replace("nccl2:", "nccl:")) == {}
    (sample,) = RingPace(0).take(text.encode())
    assert sample.seqs == (1, 2)  # the third has not completed
    assert torch_pickle(made)[:1] == b"\x80"
