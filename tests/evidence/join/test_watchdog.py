"""Who stands where by the watchdog's lines alone: of torch that names groups, and of torch that does not."""

import pytest

from allready.evidence.log import read_lines
from allready.judging.assemble import assemble
from allready.judging.engine import judge
from allready.model import FaultClass, Finding, Fleet, GroupProgress, RunEvidence, World
from tests.rules.runs import NONE


def waited(rank: int, seq: int, op: str = "ALLREDUCE", *, elements: int = 4096, old: bool = False) -> str:
    """The line of a time-out, which names no group."""
    front = (
        "[E ProcessGroupNCCL.cpp:566]"
        if old
        else f"[rank{rank}]:[E611 09:20:31.{rank:06d}000 ProcessGroupNCCL.cpp:607]"
    )
    numels = "" if old else f"NumelIn={elements}, NumelOut={elements}, "
    return (
        f"{front} [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
        f"{numels}Timeout(ms)=600000) ran for {600000 + rank} milliseconds before timing out."
    )


def status(rank: int, group: str, seq: int, enqueued: int, what: str = "Timeout at NCCL work") -> str:
    """The line behind it, with the group."""
    return (
        f"[rank{rank}]:[E611 09:20:31.{rank:06d}900 ProcessGroupNCCL.cpp:1709] [PG {group} Rank {rank}] {what}: {seq}, "
        f"last enqueued NCCL work: {enqueued}, last completed NCCL work: {seq - 1}."
    )


def read(*lines: str) -> RunEvidence:
    return assemble([read_lines(lines, "job.log", mtime_s=1.0)])


def findings(run: RunEvidence) -> tuple[Finding, ...]:
    return judge(Fleet(world=World(num_nodes=1, world_size=4), run_evidence=run, inapplicable=NONE))[0]


def of(run: RunEvidence, group: str) -> GroupProgress:
    (found,) = [p for p in run.progress if p.group == group]
    return found


def test_a_rank_cut_off_before_it_named_its_group_is_in_the_group_of_those_who_wait_in_the_same() -> None:
    run = read(
        waited(0, 70, "_ALLGATHER_BASE"),
        status(0, "3", 70, 72),
        waited(2, 70, "_ALLGATHER_BASE"),
        status(2, "3", 70, 72),
        waited(1, 70, "_ALLGATHER_BASE"),
    )
    assert [p.group for p in run.progress] == ["3"]
    assert sorted(of(run, "3").positions) == [0, 1, 2]
    assert all(p.gave_up for p in of(run, "3").positions.values())


@pytest.mark.parametrize("elements", [4096, 8])
def test_a_rank_that_names_no_group_and_waits_in_another_operation_belongs_nowhere(elements: int) -> None:
    other = waited(1, 71) if elements == 4096 else waited(1, 70, elements=elements)
    run = read(waited(0, 70), status(0, "3", 70, 72), other)
    assert sorted(of(run, "3").positions) == [0]
    assert of(run, "of unknown name").members == ()
    assert not of(run, "of unknown name").is_named


def test_where_nobody_names_a_group_it_is_the_world() -> None:
    run = read(waited(0, 70), waited(3, 70))
    assert sorted(of(run, "0").positions) == [0, 3]
    assert of(run, "0").members == (0, 1, 2, 3)


def test_only_who_says_so_waited_a_whole_time_out() -> None:
    error = "Exception (either an error or timeout) detected by watchdog at work"
    run = read(status(0, "0", 70, 72), status(1, "0", 70, 72, error), waited(2, 70), status(2, "0", 70, 72, error))
    assert {r: p.gave_up for r, p in of(run, "0").positions.items()} == {0: True, 1: False, 2: True}


def test_the_group_stands_in_the_last_words_of_the_watchdog_as_well() -> None:
    text = waited(9, 1, "COALESCED", elements=2**64 - 1).partition("] ")[2]
    front = "[rank9]:[E611 09:20:31.000009000 ProcessGroupNCCL.cpp:1895] [PG ID 6 PG GUID 90(PIPELINE) Rank 1] "
    run = read(f"{front}Process group watchdog thread terminated with exception: {text}")
    assert of(run, "90").label == "PIPELINE"
    (event,) = [e for e in run.events if e.signature == "torch.watchdog_timeout"]
    assert "numel_in" not in event.values


def test_old_torch_names_the_rank_in_the_message_only() -> None:
    run = read(waited(1, 70, old=True), waited(2, 70, old=True))
    assert {e.origin.rank for e in run.events} == {1, 2}
    assert sorted(of(run, "0").positions) == [1, 2]


def test_two_processes_with_the_same_rank_are_ranks_of_two_groups() -> None:
    first = waited(1, 70, old=True)
    run = read(first, first.replace("ran for 600001", "ran for 600077"))
    assert {e.origin.rank for e in run.events} == {None}


def test_other_operations_with_one_number_are_a_mismatch() -> None:
    run = read(
        *(waited(r, 70, "REDUCE" if r == 2 else "ALLREDUCE") for r in range(4)),
        *(status(r, "0", 70, 70) for r in range(4)),
    )
    (found,) = run.mismatches
    assert (found.source, found.kind, found.seq, found.odd) == ("watchdog", "name", 70, (2,))
    assert {r: o.name for r, o in found.by_rank.items()} == {
        0: "all_reduce",
        1: "all_reduce",
        2: "reduce",
        3: "all_reduce",
    }


def test_so_is_another_size_and_a_part_of_the_ranks_accuses_nobody() -> None:
    sized = [waited(r, 70, elements=8 if r == 3 else 4096) for r in (0, 3)]
    (found,) = read(*sized, *(status(r, "0", 70, 70) for r in (0, 3))).mismatches
    assert (found.kind, found.odd) == ("size", ())


@pytest.mark.parametrize(("one", "other"), [("SEND", "RECV"), ("COALESCED", "SEND"), ("RECV", "ALLREDUCE")])
def test_sends_and_receives_have_numbers_of_their_own(one: str, other: str) -> None:
    lines = [waited(r, 8, one if r == 0 else other) for r in range(4)]
    assert read(*lines, *(status(r, "0", 8, 8) for r in range(4))).mismatches == ()


def test_groups_side_by_side_stand_at_one_number_and_differ_in_size() -> None:
    lines = [
        waited(r, 37_428, elements=10 if r < 6 else 20).replace(f"[Rank {r}]", f"[Rank {r // 4}]") for r in range(8)
    ]
    assert read(*lines).mismatches == ()
    old = [waited(r, 37_428, old=True) for r in range(4)]
    assert {e.origin.rank for e in read(*old, waited(3, 37_430, "REDUCE", old=True)).events} == {None}


@pytest.mark.parametrize("op", ["_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"])
def test_parts_of_gathers_may_differ(op: str) -> None:
    sized = [waited(r, 70, op, elements=8 * (r + 1)) for r in range(2)]
    assert read(*sized, *(status(r, "0", 70, 70) for r in range(2))).mismatches == ()


@pytest.mark.parametrize(("seq", "number"), [(70, 0), (37_428, 1)])
def test_without_a_name_of_the_group_only_a_large_number_shows_that_it_is_one(seq: int, number: int) -> None:
    run = read(waited(0, seq, "REDUCE", old=True), waited(1, seq, "_ALLGATHER_BASE", old=True))
    assert [m.odd for m in run.mismatches] == [()] * number


def test_of_one_group_perhaps_only_one_rank_names_it_and_another_operation_under_one_number_is_a_mismatch() -> None:
    """A log that was cut: the time-outs of all ranks, and the line with the group of one."""
    run = read(waited(1, 4084), waited(2, 4084), waited(3, 4084, "BROADCAST"), status(3, "0", 4084, 4084))
    (found,) = run.mismatches
    assert (found.kind, found.seq, found.odd, sorted(found.by_rank)) == ("name", 4084, (), [1, 2, 3])
    [told] = [f for f in findings(run) if f.code == "DSY001"]
    assert told.culprits.ranks == ()
    assert (
        "rank 1,2 called all_reduce [4096] as operation 4084 of group 0, rank 3 called broadcast [4096]" in told.message
    )


@pytest.mark.parametrize("seq", [70, 4085])
def test_who_waits_in_a_group_without_a_name_did_not_stay_away(seq: int) -> None:
    run = read(waited(1, seq), waited(2, seq), waited(3, 4084, "BROADCAST"), status(3, "0", 4084, 4084))
    assert run.mismatches == ()
    assert not {r for f in findings(run) for r in f.culprits.ranks} & {1, 2, 3}


def test_the_first_operation_that_did_not_complete_is_what_a_rank_waits_in() -> None:
    lines = [waited(0, seq, old=True) for seq in (96_120, 96_117, 96_125, 96_125)]
    (position,) = of(read(*(line.replace("[E Proc", "[rank0]:[E Proc") for line in lines)), "0").positions.values()
    assert position.stuck is not None
    assert (position.stuck.seq, position.enqueued, position.gave_up) == (96_117, 96_125, True)
    later = status(1, "3", 72, 74)
    for through, seq in ((71, 72), (70, 71)):
        said = (later.replace("completed NCCL work: 71", f"completed NCCL work: {through}"), status(1, "3", 71, 74))
        (position,) = of(read(waited(1, 72), said[0], waited(1, 71), said[1]), "3").positions.values()
        assert position.stuck is not None
        assert (position.stuck.seq, position.stuck.name, position.enqueued) == (seq, "all_reduce", 74)


def test_numbers_far_apart_that_name_no_group_are_of_several() -> None:
    (position,) = of(read(waited(1, 12), waited(1, 96_120), waited(1, 96_117)), "0").positions.values()
    assert position.stuck is not None
    assert (position.stuck.seq, position.enqueued) == (96_117, 96_120)


ERROR = "Exception (either an error or timeout) detected by watchdog at work"


def test_a_time_out_in_one_group_is_none_in_another_that_stands_at_the_same_number() -> None:
    """Rank 1 gave up number 70 of group 3; in group 0 something failed at its number 70."""
    run = read(waited(1, 70), status(1, "3", 70, 72, ERROR), status(1, "0", 70, 70, ERROR))
    assert {g: of(run, g).positions[1].gave_up for g in ("0", "3")} == {"0": False, "3": True}


def test_each_group_has_the_operation_whose_line_stands_with_its_own() -> None:
    one, two = waited(1, 70, "ALLREDUCE"), waited(1, 70, "REDUCE", elements=8)
    mine, its = status(1, "3", 70, 72, ERROR), status(1, "0", 70, 70, ERROR)
    for lines in ((one, mine, two, its), (one, two, mine, its), (one, mine, its, two)):
        run = read(*lines, lines[0])
        made = {g: p.stuck.name for g in ("0", "3") for p in of(run, g).positions.values() if p.stuck is not None}
        assert made == {"0": "reduce", "3": "all_reduce"}, lines
        assert all(of(run, g).positions[1].gave_up for g in ("0", "3"))


def test_a_time_out_that_no_status_follows_is_of_the_group_that_had_enqueued_it() -> None:
    signal = (
        "[rank1]:[E611 09:20:31.000001000 ProcessGroupNCCL.cpp:1420] [PG {} Rank 1] Received a dump signal from this "
        "local rank and will start to dump the debug info. Last enqueued NCCL work: {}, last completed NCCL work: {}."
    )
    run = read(waited(1, 70), signal.format("0", 72, 69), signal.format("3", 9, 8))
    told = {g: of(run, g).positions[1] for g in ("0", "3")}
    assert {g: (p.stuck.name, p.gave_up) for g, p in told.items() if p.stuck} == {
        "0": ("all_reduce", True),
        "3": ("", False),
    }
    run = read(waited(1, 70), signal.format("0", 72, 69), signal.format("3", 71, 69))  # of either
    assert [of(run, g).positions[1].gave_up for g in ("0", "3")] == [False, False]


def test_ranks_in_other_operations_are_not_said_to_wait_in_one() -> None:
    lines = [waited(r, 70, "BROADCAST" if r == 1 else "ALLREDUCE") for r in range(4)]
    findings, _ = judge(Fleet(world=World(num_nodes=1, world_size=4), run_evidence=read(*lines)))
    told = {f.code: f for f in findings}
    assert told["HNG009"].fault_class is FaultClass.DESYNC_FLOW
    assert "all_reduce" in told["HNG009"].message
    assert "broadcast" in told["HNG009"].message
    assert "0,2,3" in told["TCH002"].message
