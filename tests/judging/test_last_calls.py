"""The calls in which ranks ended, by their last output, where rings do not hold them."""

from collections.abc import Mapping, Sequence
from typing import Any

from allready.evidence.flight.join import join_dumps
from allready.evidence.stacks.read import read_stacks
from allready.judging.calls import compare_dumps
from allready.judging.last_calls import with_last_calls
from allready.model import CallSite, Death, Mismatch, Origin, RunEvidence
from tests.cases import cases
from tests.evidence.flight.make import dump, entry, loaded

GRADIENTS, METRIC, LOSS = 33, 40, 47
SIZES = {GRADIENTS: 1000, METRIC: 1, LOSS: 1}
SITE = "/home/u/train.py:{} step"
CRASH = """--- Process {pid}: rank {rank}, pid {pid}, host gpu ---
Fatal Python error: Aborted

Thread 0x00007f97a987cb80 (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 3252 in {call}
  File "/x/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/home/u/train.py", line {line} in step
  File "/home/u/train.py", line 90 in <module>
"""
REFUSED = "gloo::EnforceNotMet: [enforce fail] op.preamble.length <= op.nbytes. 668 vs 4. Received data size"


def calls(*lines: int) -> list[dict[str, Any]]:
    found = [entry(n, size=SIZES[line], line=line) for n, line in enumerate(lines, 1)]
    for one in found:
        one["frames"] = [{"filename": "/home/u/train.py", "name": "step", "line": one["frames"][1]["line"]}]
    return found


def shown(
    rings: Mapping[int, Sequence[Mapping[str, Any]]],
    members: Sequence[int],
    *,
    crashed: Mapping[int, tuple[str, int]],
    lost: Mapping[int, int] = {},
    ends: Sequence[Death] = (),
    world_size: int = 0,
) -> Mismatch | None:
    """`crashed`: rank -> call and line of its last stack; `lost`: the same of its traceback; `ends`: further deaths."""
    found = join_dumps([loaded(dump(made, members=members), f"fr_{r}") for r, made in rings.items()])
    stacks = [
        s
        for rank, (call, line) in crashed.items()
        for s in read_stacks(CRASH.format(rank=rank, pid=100 + rank, call=call, line=line).encode(), "crash").stacks
    ]
    known = [
        Death(kind="abort", origin=Origin(source="out.log"), rank=r, text=REFUSED, is_collective_error=True)
        for r in crashed
        if r not in {e.rank for e in ends}
    ]
    known += [
        Death(
            kind="exception",
            origin=Origin(source="out.log"),
            rank=r,
            text="RuntimeError: Connection closed by peer",
            is_collective_error=True,
            site=CallSite.of(SITE.format(line)),
            call="all_reduce",
        )
        for r, line in lost.items()
    ]
    run = RunEvidence(
        deaths=(*known, *ends),
        expected_ranks=world_size,
        stacks=tuple(stacks),
        mismatches=compare_dumps(found, {}).mismatches,
    )
    mismatches = with_last_calls(run, found.groups).mismatches
    assert len(mismatches) < 2
    return mismatches[0] if mismatches else None


LOOP = [GRADIENTS, METRIC] * 10


def test_of_two_ranks_the_one_that_left_out_a_call_is_odd_though_the_other_left_an_old_ring() -> None:
    found = shown({0: calls(*LOOP[:15]), 1: calls(*LOOP[:19], GRADIENTS)}, (0, 1), crashed={0: ("all_reduce", METRIC)})
    assert found is not None
    assert (found.seq, found.odd, found.out_of_turn) == (20, (1,), (1,))
    assert found.by_rank[0].num_elements == 1
    assert [str(found.by_rank[r].site).split()[0].rpartition(":")[2] for r in (0, 1)] == [str(METRIC), str(GRADIENTS)]


def test_of_two_ranks_the_one_that_ended_in_a_call_more_is_odd() -> None:
    found = shown({0: calls(*LOOP, GRADIENTS), 1: calls(*LOOP[:15])}, (0, 1), crashed={1: ("all_reduce", METRIC)})
    assert found is not None
    assert (found.seq, found.odd) == (21, (1,))


def test_three_ranks_vote_whatever_their_loop_is() -> None:
    rings = {0: calls(GRADIENTS), 1: calls(GRADIENTS, GRADIENTS), 2: calls(GRADIENTS, METRIC)}
    found = shown(rings, (0, 1, 2), crashed={0: ("all_reduce", METRIC)})
    assert found is not None
    assert (found.seq, found.odd, found.out_of_turn) == (2, (1,), ())


def test_others_may_have_gone_on_since_they_sent_more_than_there_was_room_for() -> None:
    """Seen: a list of objects of another length; the root and a third rank were a call or two further."""
    root, other, short = (calls(*LOOP, LOSS, GRADIENTS), calls(*LOOP, LOSS, GRADIENTS, METRIC), calls(*LOOP[:15]))
    for made in (root, other):
        made[20] |= {"profiling_name": "gloo:broadcast", "input_sizes": [[167]], "output_sizes": [[167]]}
    found = shown({0: root, 1: other, 2: short}, (0, 1, 2), crashed={2: ("broadcast_object_list", LOSS)})
    assert found is not None
    assert (found.seq, found.kind, found.odd) == (21, "size", (2,))
    assert found.by_rank[2].num_elements == 1


def test_a_traceback_tells_the_line_of_a_ring_without_lines() -> None:
    rings = {0: calls(*LOOP[:19], GRADIENTS), 1: calls(*LOOP), 2: calls(*LOOP)}
    for one in (e for made in rings.values() for e in made):
        one["frames"] = []
    found = shown(rings, (0, 1, 2), crashed={}, lost={0: GRADIENTS, 1: METRIC, 2: METRIC})
    assert found is not None
    assert {r: str(o.site) for r, o in found.by_rank.items()} == {
        0: SITE.format(GRADIENTS), 1: SITE.format(METRIC), 2: SITE.format(METRIC)
    }  # fmt: skip


@cases("call", ["broadcast", "reduce_scatter_tensor"])
def test_the_function_and_the_recorder_s_name_belong_together(call: str) -> None:
    """The crash shows another function at the line of a metric: it is none of the calls that others made there."""
    found = shown({0: calls(*LOOP[:15]), 1: calls(*LOOP)}, (0, 1), crashed={0: (call, METRIC)})
    assert found is not None
    assert (found.by_rank[0].name, found.by_rank[0].num_elements) == (call, None)
    assert found.odd == ()


def test_equal_last_calls_are_no_mismatch() -> None:
    rings = {0: calls(*LOOP[:15]), 1: calls(*LOOP)}
    assert shown(rings, (0, 1), crashed={0: ("all_reduce", METRIC)}) is None


def test_a_rank_that_ended_of_something_else_may_have_ended_at_any_number() -> None:
    rings = {0: calls(*LOOP[:15]), 1: calls(*LOOP)}
    assert shown(rings, (0, 1), crashed={}, lost={0: GRADIENTS}) is None


def test_a_group_that_nobody_has_used_yet_is_no_place_of_anything() -> None:
    groups = {("0", "default_pg"): (0, 1, 2), ("1", "pair"): (0, 1)}
    found = join_dumps([loaded(dump(calls(*LOOP[:15]), groups=groups), "fr_0"), loaded(dump(calls(*LOOP)), "fr_2")])
    for tracks in ({}, {0: next(iter(found.groups))[1][0]}):
        pair = [(group, tracks if group.name == "1" else own) for group, own in found.groups]
        run = RunEvidence(
            deaths=tuple(
                Death(
                    kind="exception",
                    origin=Origin(source="out.log"),
                    rank=r,
                    text=REFUSED,
                    is_collective_error=True,
                    site=CallSite.of(SITE.format(line)),
                    call="all_reduce",
                )
                for r, line in ((0, METRIC), (1, GRADIENTS))
            )
        )
        assert not any(m.group == "1" for m in with_last_calls(run, pair).mismatches)


def test_a_rank_without_a_ring_that_ended_in_another_call_is_waited_for_and_no_mismatch() -> None:
    assert shown({0: calls(*LOOP)}, (0, 1), crashed={}, lost={1: 99}) is None


def test_the_line_of_a_call_does_not_tell_with_whose_arguments_it_was() -> None:
    """0's tensor is twice as long; 3, which got too much of it, is not said to have had the same."""
    rings = {r: calls(*[GRADIENTS] * 9) for r in (0, 1, 2)} | {3: calls(*[GRADIENTS] * 5)}
    rings[0][-1]["input_sizes"] = rings[0][-1]["output_sizes"] = [[2000]]
    found = shown(rings, (0, 1, 2, 3), crashed={3: ("all_reduce", GRADIENTS)})
    assert found is not None
    assert found.by_rank.get(3) is None
    assert found.by_rank[0].num_elements == 2000


def test_a_rank_that_was_aborted_before_it_recorded_anything_votes_in_the_group_of_all() -> None:
    """Gloo's records do not say who is in it, and the agent knows only the signal and the last output."""
    end = Death(
        kind="signal",
        signal="SIGABRT",
        origin=Origin(source="status.json"),
        rank=1,
        text="killed by SIGABRT",
        last_words=REFUSED,
        site=CallSite.of(SITE.format(METRIC)),
        is_collective_error=True,
    )
    rings = {0: calls(METRIC), 2: calls(GRADIENTS)}
    for world_size, odd in ((3, (2,)), (4, ()), (0, ())):
        found = shown(rings, (), crashed={1: ("all_reduce", METRIC)}, ends=[end], world_size=world_size)
        assert found is not None
        assert (found.seq, found.odd) == (1, odd), world_size
        assert found.by_rank.keys() == ({0, 1, 2} if world_size else {0, 2})
