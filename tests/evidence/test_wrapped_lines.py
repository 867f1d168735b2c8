"""Words of torch's watchdog that a terminal, a page or a collector broke into several lines."""

import textwrap

import pytest

from allready.evidence.log import read_lines
from allready.model import Event
from tests.cases import cases

TIMED_OUT = (
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, "
    "NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 600123 milliseconds before timing out."
)
OLD_STATUS = (
    "[PG 0 (default_pg) Rank 3] Timeout at NCCL work: 1234, last enqueued NCCL work: 1240, last completed NCCL "
    "work: 1233."
)
STATUS = (
    "[PG ID 0 PG GUID 0(default_pg) Rank 3]  failure detected by watchdog at work sequence id: 1234 PG status: last "
    "enqueued work: 1240, last completed work: 1233"
)
HEAD = "[rank3]:[E1120 12:00:18.000000000 ProcessGroupNCCL.cpp:632] "
OTHER = HEAD.replace("rank3", "rank5")


def events(*lines: str) -> list[Event]:
    found = read_lines(lines, "out.log", mtime_s=1.0).events
    return [e for e in found if e.signature in {"torch.watchdog_timeout", "torch.pg_status"}]


def said(*lines: str) -> list[tuple[object, ...]]:
    names = ("seq", "op", "numel_in", "timeout_ms", "ran_ms", "work", "enqueued", "completed")
    return [(e.origin.rank, *(e.values[n] for n in names if n in e.values)) for e in events(*lines)]


def hard(text: str, width: int, indent: str = "") -> list[str]:
    """As a terminal breaks lines: anywhere."""
    pieces = [text[at : at + width] for at in range(0, len(text), width)]
    return [pieces[0], *(indent + piece for piece in pieces[1:])]


TOLD = {
    TIMED_OUT: (3, "1234", "ALLREDUCE", "466119168", "600000", "600123"),
    OLD_STATUS: (3, "1234", "1240", "1233"),
    STATUS: (3, "1234", "1240", "1233"),
}


@pytest.mark.parametrize("text", TOLD)
def test_lines_that_were_wrapped_are_read_as_one(text: str) -> None:
    whole = HEAD + text
    assert said(whole) == [TOLD[text]]
    for width in (64, 72, 80, 100, 120, 132):
        assert said(*textwrap.wrap(whole, width)) == [TOLD[text]], width
        assert said(*textwrap.wrap(whole, width, subsequent_indent="         ")) == [TOLD[text]], width
    (found,) = events(*textwrap.wrap(whole, 80))
    assert (found.text, found.origin.line) == (text, 1)


@cases("text", [TIMED_OUT, OLD_STATUS])
@cases("width", range(88, 134))
@pytest.mark.thorough
def test_a_terminal_breaks_anywhere_also_inside_a_number(text: str, width: int) -> None:
    """Not the newest status: nothing stands behind its last number."""
    assert said(*hard(HEAD + text, width)) == [TOLD[text]]
    assert said(*(line.rstrip() for line in hard(HEAD + text, width))) == [TOLD[text]]


def test_pieces_with_the_rank_in_front_may_stand_between_lines_of_others() -> None:
    one = [f"[rank3]: {piece}" for piece in textwrap.wrap(TIMED_OUT, 70)]
    two = [f"[rank5]: {piece}" for piece in textwrap.wrap(TIMED_OUT.replace("1234", "1299"), 70)]
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    assert said(*mixed) == [TOLD[TIMED_OUT], (5, "1299", *TOLD[TIMED_OUT][2:])]


def test_the_shape_of_a_page_where_the_first_line_has_no_rank_in_front() -> None:
    lines = (
        "[Rank 4] Watchdog caught collective operation timeout:",
        "WorkNCCL(SeqNum=27732, OpType=_REDUCE_SCATTER_BASE,",
        "         NumelIn=215585536, NumelOut=26948192, Timeout(ms)=1800000)",
        "         ran for 1800003 milliseconds before timing out.",
        "",
        "[Rank 4] failure detected by watchdog at work sequence id: 27732",
        "         PG status: last enqueued work: 27753, last completed work: 27731",
    )
    assert [t[1:] for t in said(*lines)] == [
        ("27732", "_REDUCE_SCATTER_BASE", "215585536", "1800000", "1800003"),
        ("27732", "27753", "27731"),
    ]


@cases(
    "lines",
    [
        [HEAD + TIMED_OUT[:80], "step 12 loss 2.0", TIMED_OUT[80:]],
        [HEAD + TIMED_OUT[:80], OTHER + "Some NCCL operations have failed", TIMED_OUT[80:]],
        [HEAD + TIMED_OUT[:80], "[rank5]: " + TIMED_OUT[80:]],
        [HEAD + TIMED_OUT[:80], OTHER + TIMED_OUT[:80], TIMED_OUT[80:], TIMED_OUT[80:]],  # whose is which?
        [HEAD + TIMED_OUT[:80], TIMED_OUT[80:].replace(" before timing out.", "")],
        [HEAD + TIMED_OUT[:80], TIMED_OUT[80:] + " And then the run was started again"],
        [HEAD + TIMED_OUT[:80], "", TIMED_OUT[80:]],
        ["the watchdog caught nothing,", TIMED_OUT[80:]],
        [HEAD + TIMED_OUT[:80]],
    ],
)
def test_pieces_that_need_not_belong_together_are_left_apart(lines: list[str]) -> None:
    assert said(*lines) == []


def test_a_whole_line_does_not_swallow_the_next() -> None:
    assert said(HEAD + STATUS, "7", HEAD + OLD_STATUS, "8.") == [TOLD[STATUS], TOLD[OLD_STATUS]]


STUCK = (
    "[PG ID 0 PG GUID 0(default_pg) Rank 3] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making "
    "progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) "
    "hang blocking the watchdog, and could be triggered by another thread holding the GIL inside a CUDA api"
)


def test_a_sentence_that_others_follow_is_read_too() -> None:
    for width in (72, 80, 100, 116, 132):
        for lines in (hard(HEAD + STUCK, width), textwrap.wrap(HEAD + STUCK, width)):
            found = read_lines(lines, "out.log", mtime_s=1.0).events
            stuck = [e for e in found if e.signature == "torch.heartbeat_abort"]
            assert [(e.origin.rank, e.values["seconds"]) for e in stuck] == [(3, "480")], width
    assert not read_lines([HEAD + STUCK[:70], "step 12", STUCK[70:]], "out.log", mtime_s=1.0).events


def test_a_line_that_a_page_broke_and_indented_is_read_as_one() -> None:
    lines = [
        "[rank8] Gloo connectFullMesh failed ... timed out connecting: SO_ERROR: Connection refused,",
        "        remote=[127.0.0.1]:14215",
    ]
    [event] = read_lines(lines, "out.log").events
    assert (event.signature, event.origin.rank) == ("gloo.peer_is_loopback", 8)
    apart = [lines[0], "        Remote=[10.0.0.1]:9", lines[1]]
    assert not read_lines(apart, "out.log").events
