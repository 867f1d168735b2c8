from msgspec.structs import replace

from allready.model import CallShift, CallSite, Operation
from tests.rules.live.made import ask, progress, waiting

SHIFT = CallShift(
    rank=3,
    label="mesh_dp",
    base="mesh_tp",
    seq=100,
    numbers={0: 50, 1: 50, 2: 50, 3: 49},
    operation="all_reduce (16 KiB)",
)


def test_names_the_rank_whose_calls_are_paired_with_those_of_another_turn() -> None:
    [hit] = ask("DSY009", shift=SHIFT).hits
    assert (hit.culprits.ranks, hit.values["own"], hit.values["usual"]) == ((3,), 49, 50)
    assert (hit.values["operation"], hit.values["site"], hit.fault_class) == ("all_reduce (16 KiB)", None, None)
    assert [e.text.rpartition(": ")[2] for e in hit.evidence] == [
        "49 calls of group mesh_dp before call 100 of mesh_tp",
        "50 calls of group mesh_dp before call 100 of mesh_tp",
    ]


def test_shows_the_line_where_a_record_has_it() -> None:
    [told] = progress({r: waiting(r) for r in range(4)})
    known = {
        r: replace(p, last=Operation(seq=9, name="all_reduce", site=CallSite.of("train.py:7 grads")))
        for r, p in told.positions.items()
    }
    [hit] = ask("DSY009", shift=SHIFT, progress=(replace(told, label="mesh_dp", positions=known),)).hits
    assert str(hit.values["site"]) == "train.py:7 grads"


def test_the_line_of_another_group_is_not_shown() -> None:
    [told] = progress({r: waiting(r) for r in range(4)})
    known = {
        r: replace(p, last=Operation(seq=9, name="all_reduce", site=CallSite.of("train.py:3 attention")))
        for r, p in told.positions.items()
    }
    [hit] = ask("DSY009", shift=SHIFT, progress=(replace(told, label="mesh_tp", positions=known),)).hits
    assert hit.values["site"] is None


def test_is_clear_where_all_make_the_same_number() -> None:
    assert ask("DSY009").state == "clear"
