"""How many collectives a rank made in each group: only what all ranks of a healthy job count alike."""

from collections.abc import Sequence
from typing import Any

from allready.live.beacon.made import made_in

Entry = dict[str, Any]


def call(seq: int, kind: str = "gloo:all_reduce", name: str = "0", number: int = 0, **more: object) -> Entry:
    return {
        "pg_id": number,
        "process_group": [name, "default_pg" if name == "0" else "undefined"],
        "collective_seq_id": seq,
        "profiling_name": kind,
        **more,
    }


def counted(*rings: tuple[str, Sequence[Entry]], first: int = 0) -> dict[str, int]:
    """Group -> collectives, of rings that begin with this record."""
    numbered = [(b, [entry | {"record_id": first + at} for at, entry in enumerate(ring)]) for b, ring in rings]
    return {name: group.enqueued for name, group in made_in(numbered).items()}


def test_sends_and_what_is_no_call_do_not_count() -> None:
    calls = [call(1), call(2), call(1, name="7", number=1), call(2, "gloo:send 1->2"), call(40, is_p2p=True)]
    assert counted(("gloo", [*calls, {"pg_id": 0}])) == {"0": 2, "7": 1}


def test_gloo_numbers_tell_also_what_the_ring_no_longer_holds() -> None:
    assert counted(("gloo", [call(2500), call(2501)]), first=500) == {"0": 2501}


def test_batches_of_sends_in_a_pipeline_do_not_count_although_they_move_the_numbers_of_nccl() -> None:
    """The first stage makes one batch for two of the middle one."""
    batch = [call(2, "nccl:send 0->1", is_p2p=True), call(2, "nccl:coalesced")]
    first = [call(1, "nccl:all_reduce"), *batch, call(3, "nccl:all_reduce")]
    middle = [call(1, "nccl:all_reduce"), *batch, *batch, call(4, "nccl:all_reduce")]
    assert counted(("nccl", first)) == counted(("nccl", middle)) == {"0": 2}


def test_a_ring_of_nccl_that_was_written_over_tells_no_number() -> None:
    assert counted(("nccl", [call(90, "nccl:all_reduce")]), first=7) == {}


def test_a_name_that_another_group_has_after_it_was_destroyed_is_left_out() -> None:
    """`init_process_group` again, of other ranks: torch calls the group of all of these 0 again."""
    calls = [call(1), call(1, name="7", number=1), call(1, number=2), call(2, number=2)]
    assert counted(("gloo", calls)) == {"7": 1}


def test_two_backends_of_one_group_are_counted_apart_also_where_the_calls_of_one_are_overwritten() -> None:
    gloo, nccl = ("gloo", [call(1), call(2)]), call(1, "nccl:all_reduce")
    assert counted(("nccl", [nccl]), gloo) == {"0": 1, "0:cpu": 2}
    overwritten = [call(5, "nccl:all_reduce", name="7", number=1, record_id=3000)]
    assert list(made_in([("nccl", overwritten), gloo])) == ["0:cpu"]
