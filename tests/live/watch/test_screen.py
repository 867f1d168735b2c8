"""The page: any size of screen, both languages, nothing of a job reaches the terminal as it is."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allready.live.watch.full_screen import scrolled
from allready.live.watch.keyboard import name_of
from allready.live.watch.screen import full_page, page_of_text, plain_text, short_site
from allready.live.watch.state import Remark, WatchedJob, WatchState, lines_of, newest_attempt, remarks_on
from allready.model import GroupMark, NodeStatus, ProcessState, RankStatus, SocketRow
from allready.report.safe import width, wrapped
from tests.cases import cases
from tests.live.watch.test_state import JOB, state

LONG = RankStatus(
    rank=3,
    pid=4711,
    process_state=ProcessState.SLEEPING,
    phase="communicating",
    cpu_share=0.2,
    children_cpu_share=1.8,
    throttled_share=0.4,
    gpu_busy_share=1.0,
    gpu_power_w=700.0,
    period_s=0.25,
    heartbeat_age_s=7.0,
    site_since_s=88.0,
    site="/a/very/long/way/to/train.py:123 train_one_epoch",
    groups=(GroupMark(group="0", label="default_pg", enqueued=100_000, waiting_s=12.0),),
)


def crowd(number: int) -> WatchState:
    ranks = tuple(
        RankStatus(
            rank=r, pid=1000 + r, process_state=ProcessState.SLEEPING, groups=(GroupMark(group="0", enqueued=5),)
        )
        for r in range(number)
    )
    base = state(culprit=1)
    return WatchState(job=JOB, now_s=0.0, statuses=(NodeStatus(node_rank=0, ranks=ranks),), report=base.report)


@given(columns=st.integers(1, 220), lines=st.integers(1, 60), number=st.integers(0, 90), first=st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_is_never_larger_than_the_screen(columns: int, lines: int, number: int, first: int) -> None:
    for language in ("en", "zh"):
        rows = full_page(
            crowd(number),
            language,
            columns=columns,
            lines=lines,
            first=first,
            message="x" * 300,
            problem="y " * 300,
            coloured=False,
        ).lines
        assert len(rows) <= lines
        assert max(map(width, rows), default=0) <= max(columns, 1)


def test_a_small_screen_has_the_named_rank_first_and_scrolls_to_the_last_one() -> None:
    job = crowd(64)
    assert job.report is not None
    seen = full_page(job, "en", columns=80, lines=20, coloured=False)
    rows, left = seen.lines, seen.left
    table = [row for row in rows if row.split()[:1] and row.split()[0].isdecimal()]
    assert table[0].split()[0] == "1"  # the culprit
    assert any("of 64" in row for row in rows)
    assert left == 64 - len(table)
    last = full_page(job, "en", columns=80, lines=20, first=scrolled("G", 0, left, page=10), coloured=False)
    assert last.left == 0
    assert any(row.split()[:1] == ["63"] for row in last.lines)
    assert last.ranks[0] == 1
    assert sorted(last.ranks) == list(range(64))


def test_a_narrow_screen_keeps_rank_and_place_and_drops_what_matters_least() -> None:
    job = WatchState(job=JOB, now_s=100.0, statuses=(NodeStatus(node_rank=0, time_s=100.0, ranks=(LONG,)),))
    wide = full_page(job, "en", columns=200, lines=10, coloured=False).lines
    narrow = full_page(job, "en", columns=60, lines=10, coloured=False).lines
    assert "20%+180% -40%" in wide[-2]
    assert "100% 700 W" in wide[-2]
    assert "communicating (silent 7.0 s)" in wide[-2]
    assert "12.0 s: /a/very/long" in wide[-2]
    assert "4711" not in narrow[-2]
    assert narrow[-2].startswith("3 ")
    assert "train.py:123" in narrow[-2]  # of a place file and line stay
    assert "…" in narrow[-2]


def test_the_chosen_row_is_marked_and_of_a_place_the_time_and_the_end_stay() -> None:
    seen = full_page(crowd(5), "en", columns=80, lines=20, chosen=2)
    assert next(row for row in seen.lines if row.startswith("\x1b[7m")).split()[0].endswith("m2")
    head = "12.0 s: "
    place = f"{head}/a/very/long/path/of/somebody/train.py:10 step"
    assert short_site(place, 40, head) == "12.0 s: …th/of/somebody/train.py:10 step"
    assert short_site(place, 200, head) == place
    assert [short_site(place[8:], n) for n in (17, 16, 15, 11, 8)] == [
        "…train.py:10 step",
        "train.py:10 step",
        "train.py:10 st…",
        "train.py:10",
        "…n.py:10",
    ]
    assert all(width(short_site(place, n, head)) <= n for n in range(60))


def test_a_text_in_place_of_the_table_scrolls_to_its_end_and_fits_the_screen() -> None:
    text = [f"line {n} " + "x" * 60 for n in range(50)]
    options: dict[str, Any] = {"columns": 40, "lines": 10, "coloured": False, "encoding": "utf-8"}
    seen = page_of_text("rank 3", text, "q back", first=0, **options)
    assert (seen.lines[0], seen.lines[2], seen.lines[-1]) == ("rank 3", "line 0", "q back")
    end = page_of_text("rank 3", text, "q back", first=seen.first + seen.left, **options)
    assert end.left == 0
    assert len(end.lines) == 10
    assert all(width(row) <= 40 for row in end.lines)


def test_chinese_has_no_english_words_of_ours() -> None:
    text = plain_text(WatchState(job=JOB, now_s=0.0, statuses=(NodeStatus(node_rank=0, ranks=(LONG,)),)), "zh")
    assert "通信（7.0 s 无响应）" in text or "通信 (7.0 s 无响应)" in text
    for word in ("sleeping", "communicating", "silent", "verdict"):
        assert word not in text


def test_colours_only_where_they_are_wanted() -> None:
    assert any("\x1b[1;31m" in row for row in full_page(state(culprit=1), "en", columns=80, lines=20).lines)
    assert not any("\x1b" in row for row in full_page(state(), "en", columns=80, lines=20, coloured=False).lines)


@given(text=st.text(max_size=300), columns=st.integers(1, 50), most=st.integers(1, 5))
def test_wrapping_keeps_within_its_bounds(text: str, columns: int, most: int) -> None:
    lines = wrapped(text, columns, most=most)
    assert len(lines) <= most
    assert all(width(line) <= columns or len(line) == 1 for line in lines)


def test_a_loop_that_is_seen_at_one_place_is_not_stuck_there() -> None:
    def site(moved_s: float) -> tuple[str, str]:
        rank = RankStatus(
            rank=0, site="t.py:7 <module>", site_since_s=50.0, groups=(GroupMark(group="0", moved_s=moved_s),)
        )
        [line] = lines_of(
            WatchState(job=JOB, now_s=60.0, statuses=(NodeStatus(node_rank=0, time_s=60.0, ranks=(rank,)),))
        )
        return line.site_head, line.site

    assert site(59.0) == ("", "t.py:7 <module>")
    assert site(49.0) == ("10.0 s: ", "t.py:7 <module>")


def test_a_folder_whose_name_reads_like_a_time_is_a_part_of_the_place() -> None:
    place = "3 s: data/a/very/long/path/of/somebody/train.py:10 step"
    assert short_site(place, 40).startswith("…")
    assert short_site(f"12.0 s: {place}", 40, "12.0 s: ").startswith("12.0 s: …")


def test_a_word_that_is_a_second_old_does_not_make_a_rank_late() -> None:
    def node(number: int, enqueued: int, time_s: float, moved_s: float) -> NodeStatus:
        mark = GroupMark(group="0", enqueued=enqueued, moved_s=moved_s)
        rank = RankStatus(rank=number, groups=(mark,), period_s=0.025)
        return NodeStatus(node_rank=number, time_s=time_s, ranks=(rank,))

    def lags(moved_s: float) -> list[str]:
        both = (node(0, 743, 100.0, 100.0), node(1, 700, 99.0, moved_s))
        return [line.lag for line in lines_of(WatchState(job=JOB, now_s=100.0, statuses=both))]

    assert lags(98.9) == ["0", "0"]
    assert lags(90.0) == ["0", "43"]  # it makes no progress: its word is as good as new


def test_secrets_of_the_command_are_masked() -> None:
    job = WatchedJob(source="allready", job_id="j", pid=1, command=("t.py", "--api-key", "abcd1234efgh5678"))
    assert "abcd1234" not in plain_text(WatchState(job=job, now_s=0.0), "en")


def test_sockets_stay_for_the_looks_that_have_none_but_not_for_ever() -> None:
    row = SocketRow(rank=0, pid=1, local="a", local_port=1, remote="b", remote_port=2)
    first = (NodeStatus(node_rank=0, time_s=10.0, sockets=(row,)),)
    assert newest_attempt((NodeStatus(node_rank=0, time_s=12.0),), first)[0].sockets == (row,)
    assert newest_attempt((NodeStatus(node_rank=0, time_s=30.0),), first)[0].sockets == ()
    assert newest_attempt((NodeStatus(node_rank=0, time_s=12.0, attempt=1),), first)[0].sockets == ()


def test_a_node_of_an_earlier_attempt_is_gone() -> None:
    mixed = (NodeStatus(node_rank=0, attempt=1), NodeStatus(node_rank=1, attempt=0))
    assert [s.node_rank for s in newest_attempt(mixed, ())] == [0]


def test_says_which_nodes_are_silent_and_how_old_a_word_is() -> None:
    one = NodeStatus(node_rank=0, time_s=1000.0, ranks=(RankStatus(rank=0),))
    # Its clock is an hour ahead; what it says is 20 s old.
    two = NodeStatus(node_rank=1, time_s=4580.0, clock_offset_s=3600.0, ranks=(RankStatus(rank=1),))
    notes = [note.text("en") for note in remarks_on((one, two), 1000.0, 4)]
    assert notes == ["no data from node 2,3", "node 1: no update for 20 s; its rows are that old"]
    assert [n.key for n in remarks_on((), 1000.0, 2)] == ["no_ranks"]


def test_hostile_notes_are_escaped() -> None:
    evil = WatchState(job=JOB, now_s=0.0, notes=(Remark(key="no_ras", values={"why": "\x1b]0;x\x07"}),))
    assert "\x1b" not in plain_text(evil, "en")


@cases(("part", "name"), [(b"\x1b[A", "up"), (b"\x1b", "esc"), (b"q", "q"), (b"\x1b[200~", "")])
def test_keys_have_names(part: bytes, name: str) -> None:
    assert name_of(part) == name


def test_a_rank_without_groups_shows_no_operation() -> None:
    (line,) = lines_of(WatchState(job=JOB, now_s=0.0, statuses=(NodeStatus(node_rank=0, ranks=(RankStatus(rank=0),)),)))
    assert (line.operation, line.lag) == ("", "")
