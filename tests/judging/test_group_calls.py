"""Dumps, COLL lines and live cells of the same calls are compared alike."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from allready.judging.group_calls import kind_of
from allready.live.digests import digests_of
from allready.live.monitor.pace import PaceBook
from allready.model import GroupMark, Mismatch, NodeStatus, Operation, PaceSample, RankStatus
from tests.cases import cases
from tests.evidence.flight.make import dump, entry, joined
from tests.evidence.operations.streams import shape, whole_job
from tests.judging.joined import joined_operations


class Call(NamedTuple):
    """One call of one rank."""

    name: str
    size: int = 1024
    dtype: str = "float32"


A, B, C = Call("all_reduce"), Call("all_reduce", 2048), Call("all_reduce", 4096)
GATHER, HALF, FLAG = Call("all_gather", 256), Call("all_reduce", 1024, "float16"), Call("all_reduce", 4)
LOOP = [A, B, C] * 12
RECORDED = {"float32": "Float", "float16": "Half"}


def entries(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [
        entry(seq, f"nccl:{call.name}", size=call.size, dtype=RECORDED[call.dtype]) for seq, call in enumerate(calls, 1)
    ]


def of_dumps(calls: Mapping[int, Sequence[Call]]) -> Mismatch:
    [found] = joined({r: dump(entries(made), members=tuple(calls)) for r, made in calls.items()}).mismatches
    return found


def of_logs(calls: Mapping[int, Sequence[Call]]) -> Mismatch:
    logged = [[shape(call.name, call.size, dtype=call.dtype) for call in made] for made in calls.values()]
    [found] = joined_operations(*whole_job(logged)).mismatches
    return found


def of_cells(calls: Mapping[int, Sequence[Call]]) -> Mismatch:
    book = PaceBook()
    for rank, made in calls.items():
        digests = digests_of(entries(made))
        times = tuple(1_000.0 + 0.01 * seq for seq in digests)
        sample = PaceSample(rank=rank, group="0", seqs=tuple(digests), created_s=times, digests=tuple(digests.values()))
        told = RankStatus(rank=rank, groups=(GroupMark(group="0", label="default_pg", members=tuple(calls)),))
        book.add(NodeStatus(node_rank=rank, time_s=times[-1], ranks=(told,), pace=(sample,)))
    [found] = book.mismatches()
    return found


@cases(
    ("calls", "seq", "kind", "odd", "shift", "late"),
    [
        ({0: LOOP, 1: LOOP, 2: LOOP, 3: [*LOOP[:20], FLAG, *LOOP[21:]]}, 21, "size", (3,), None, ()),
        ({0: LOOP, 1: LOOP, 2: LOOP, 3: [*LOOP[:20], GATHER, *LOOP[21:]]}, 21, "name", (3,), None, ()),
        ({0: LOOP, 1: LOOP, 2: [*LOOP[:18], HALF, *LOOP[19:]]}, 19, "dtype", (2,), None, ()),
        ({0: LOOP, 1: LOOP, 2: [*LOOP[:20], GATHER, *LOOP[20:]]}, 21, "name", (2,), 1, ()),
        ({0: LOOP, 1: LOOP, 2: [*LOOP[:20], *LOOP[21:]]}, 21, "size", (2,), -1, (2,)),
        ({0: LOOP, 1: [*LOOP[:20], *LOOP[21:]]}, 21, "size", (1,), -1, (1,)),
        ({0: LOOP, 1: [*LOOP[:20], GATHER, *LOOP[20:]]}, 21, "name", (), 1, ()),
        ({0: LOOP, 1: LOOP, 2: [*LOOP[:20], FLAG], 3: [*LOOP[:20], GATHER]}, 21, "name", (), None, ()),
    ],
    ids=[
        "another size once",
        "another operation once",
        "another type once",
        "one call more",
        "one less of the loop",
        "one less of the loop, of two",
        "one more that the loop has not, of two",
        "three different ones",
    ],
)
def test_every_source_tells_the_same(
    calls: Mapping[int, Sequence[Call]], seq: int, kind: str, odd: tuple[int, ...], shift: int | None, late: Any
) -> None:
    in_dumps, in_logs, in_cells = of_dumps(calls), of_logs(calls), of_cells(calls)
    for found in (in_dumps, in_logs):
        told = (found.seq, found.kind, found.odd, found.shift, found.out_of_turn)
        assert told == (seq, kind, odd, shift, late), found.source
    assert in_dumps.is_same_call == in_logs.is_same_call
    # Cells have digests of the calls: what they are, and no calls before.
    by_vote = odd if len(calls) > 2 else ()
    assert (in_cells.seq, in_cells.odd, in_cells.is_by_digest) == (seq, by_vote, True)
    assert (in_cells.kind == "name") is (kind == "name")


def test_what_is_not_recorded_differs_from_nothing() -> None:
    known = Operation(seq=1, name="all_reduce", num_elements=4, dtype="float32", root=0, redop="sum")
    for unknown in ({"num_elements": None}, {"dtype": None}, {"root": None}, {"redop": None}, {"name": ""}):
        one = replace(known, **unknown)
        assert kind_of([one, replace(known, dtype="float16")]) == ("size" if unknown == {"dtype": None} else "dtype")
