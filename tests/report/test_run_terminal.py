import io
from typing import Any

import pytest
from msgspec.structs import replace

from allready.model import Culprits, GroupPosition, Report, TimelineEvent
from allready.report.run_words import bands, came, chain, clock, doing, event_text, gist, onset_s, stand
from allready.report.safe import width
from allready.report.terminal import show
from tests.cases import cases
from tests.clock import timed
from tests.report.hostile import PAYLOADS, changed
from tests.report.made_up import faulty_report
from tests.report.made_up_run import BEGIN, STUCK, WELL, died, row, stuck_report, well_report, whole_report
from tests.report.test_terminal import SGR, Terminal


def shown(report: Report, language: str = "en", **options: Any) -> str:
    stream = io.StringIO()
    show(report, language=language, stream=stream, **options)
    return stream.getvalue()


PLAIN = """\
✗ FAULT: HNG901 A rank did not come (message)
  culprit: rank 1
  fix: mend HNG901
  class: CPU-STUCK · likely · since 2026-01-02T03:04:15 · allready explain HNG901
  evidence: run/out.0:9: a line (03:04:15)

Also found (5)
error: TCH902 A collective did not finish (message)
  fix: mend TCH902
  evidence: run/out.0:9: a line (03:04:15)
info: HNG907 The bytes need far less (message)
lines that look bad and explain nothing (3): TCH023 A variable has a newer name, \
NLG019 A peer closed its connection, ELA017 A table of failures

Read: 2 sources · 90.2 KiB · 798 lines · 1,234 operations counted · 7 lines not understood · 1 source with a problem
  problem: run/ras.json (broken JSON, repaired)

Differences from good (2)
  area     what              good run   this run  ranks
  setting  NCCL_P2P_DISABLE  (not set)  1         all
  time     init total        0.3 s      0.9 s     1

Chain of events (2026-01-02)
  time          rank    role       code    text
  03:04:15      0,2-7   operation  –       enters all_reduce #64 of default_pg and never completes it
  03:04:16      node 0  root       KRN001  Xid 79: GPU has fallen off the bus (×3)
  03:04:27.250  0       record     TCH002  Watchdog caught collective operation timeout
  03:04:35      2       cascade    NLG019  Connection closed by remote peer
  03:04:36      2       death      –       Signal 6 (SIGABRT)
  03:04:37      3       death      –       Sending process 1003 closing signal SIGTERM (ended by its launcher)
  –             –       teardown   ELA017  ChildFailedError:

Ranks (8)
  rank   node  process                GPU        NCCL init  network  operations                    where it stands
  1      0     gpu0:1001              1 (1b000)  complete   IB       33 all_reduce, 30 all_gather  \
idle in the user's code (train.py:20 <module>); flight recorder: no dump
  0,2-7  0,1   2 hosts · 7 processes  0-3        complete   IB       34 all_reduce, 31 all_gather  \
waits in all_reduce #64

clocks: gpu1 is 120 ms ± 4 ms ahead of the reference node, from 63 events that happened together
clocks: gpu2 is 1 ms ± 20 ms behind the reference node, from 1 event that happened together; \
that may be no difference at all

Iterations: marker step (\\d+): 11 to 12 iterations per rank; usual: 2 all_reduce
  odd: rank 0, iteration 7: 3 all_reduce

nccl-tests: all_reduce · 8 B to 1 GiB · busbw up to 375 GB/s at 1 GiB · average 188 GB/s · 2 wrong values · run/perf.txt
"""


def test_all_parts_stand_in_plain_text_one_below_the_other() -> None:
    assert shown(whole_report()) == PLAIN


def test_quiet_leaves_only_the_verdict() -> None:
    assert shown(whole_report(), quiet=True) == "".join(PLAIN.splitlines(keepends=True)[:3])


def test_chinese_is_chinese_in_every_part() -> None:
    text = shown(whole_report(), "zh")
    for part in (
        "已读取：2 个来源",
        "事件链 (2026-01-02)",
        "进入 default_pg 的 all_reduce #64，之后再未完成",
        "停在用户代码中 (train.py:20 <module>)；飞行记录器：没有转储",
        "卡在 all_reduce #64",
        "第 7 次迭代",
        "与 good 的差异 (2)",
        "时钟：gpu1 比参考节点快 120 ms ± 4 ms",
        "2 个错误值",
    ):
        assert part in text


def test_a_good_run_says_so_and_tells_no_story() -> None:
    lines = shown(well_report()).splitlines()
    assert lines[1] == "  8 of 8 ranks ended well · 900 ms"
    assert "Chain of events" not in "\n".join(lines)
    assert any(
        line.split()
        == [
            "0-7",
            "0,1",
            "2",
            "hosts",
            "·",
            "8",
            "processes",
            "0-3",
            "complete",
            "IB",
            "34",
            "all_reduce,",
            "31",
            "all_gather",
            "ended",
            "well",
        ]
        for line in lines
    )


def test_no_difference_is_said() -> None:
    assert "Differences from good: no difference found" in shown(stuck_report(baseline="good"))
    assert "Differences" not in shown(stuck_report())


def test_verbose_shows_every_rank_with_its_neighbours_and_unfolds_the_harmless() -> None:
    text = shown(whole_report(), verbose=1)
    assert (
        "rank 3: versions: nccl 2.28.9, cuda-driver 13000 · interfaces chosen: eth0 10.0.0.1 · also available: docker0"
        in text
    )
    assert "HCAs chosen: mlx5_0:1/RoCE" in text
    assert "-> 4 P2P/CUMEM x2" in text
    assert "AllReduce RING/SIMPLE ×12" in text
    assert "not understood: 7 lines of run/out.0, such as: what is this" in text
    assert "explain nothing" not in text
    assert "mend TCH023" in text


def test_a_report_without_a_run_is_as_before() -> None:
    text = shown(faulty_report())
    assert "Read:" not in text
    assert "Ranks" not in text
    assert bands(faulty_report()) == []


def test_info_that_is_not_about_a_line_is_never_folded() -> None:
    assert "info: HNG907" in shown(whole_report())


def test_a_culprit_node_makes_its_ranks_culprits_and_a_few_stay_apart() -> None:
    report = stuck_report()
    assert report.verdict is not None
    report = replace(report, verdict=replace(report.verdict, culprits=Culprits(nodes=(1,))))
    first = bands(report)[:4]
    assert [band.rows[0].rank for band in first] == [4, 5, 6, 7]
    assert all(band.culprit for band in first)


def test_many_culprits_are_folded() -> None:
    report = stuck_report(64)
    assert report.verdict is not None
    report = replace(report, verdict=replace(report.verdict, culprits=Culprits(ranks=tuple(range(2, 64)))))
    found = bands(report)
    assert found[0].culprit
    assert len(found[0].rows) == 62


def test_the_dead_stand_before_the_waiting_and_the_rare_before_the_usual() -> None:
    rows = (
        *(row(n) for n in range(6)),
        row(6, end=died("ValueError: x"), activity_kind=""),
        row(7, end=None, activity_kind=""),
    )
    found = bands(replace(stuck_report(ranks=rows), verdict=None))
    assert [band.rows[0].rank for band in found] == [6, 7, 0]


def test_a_death_by_the_launcher_is_no_cause() -> None:
    rows = (row(0), row(1), row(2, end=died("Sending process 7 closing signal SIGTERM", by_launcher=True)))
    found = bands(replace(stuck_report(ranks=rows), verdict=None))
    assert found[0].rows[0].rank == 2
    text = shown(stuck_report(ranks=rows), colour=True)
    assert "\x1b[1;31mSending" not in text


def test_endings_of_one_shape_are_one() -> None:
    ends = (replace(died(f"[{n}] lost 0x{n:x}"), shape="# lost #") for n in range(4))
    rows = tuple(row(n, end=end, activity_kind="") for n, end in enumerate(ends))
    assert len(bands(replace(stuck_report(ranks=rows), verdict=None))) == 1
    codes = tuple(row(n, end=died("", exit_code=n), activity_kind="") for n in range(4))
    assert len(bands(replace(stuck_report(ranks=codes), verdict=None))) == 4


def test_ranks_without_evidence_are_said_to_be_unknown() -> None:
    nothing = row(3, end=None, activity_kind="", positions=(), last_line_class="")
    assert stand(nothing, "en") == "nothing known"
    assert stand(replace(nothing, last_line_class="connect"), "en") == "last line: connecting"
    assert stand(replace(nothing, last_line_class="connect"), "zh") == "最后一行：建立连接"


def test_of_a_long_exception_the_name_and_the_last_error_are_kept() -> None:
    text = f"torch.DistBackendError: NCCL error in: {'x' * 200}; last error: no space left on device"
    end = died(text, last_error="no space left on device")
    assert gist(text, 80, end) == "torch.DistBackendError: NCCL error in: xxxxxxxxxxxxxxxx… no space left on device"
    assert gist("short; last error: y", 80, died("short", last_error="y")) == "short; last error: y"
    assert gist("y" * 90, 80) == gist("y" * 90, 80, died("y")) == "y" * 79 + "…"
    assert len(gist(text, 80, died(text, last_error="z" * 300))) <= 80


def test_columns_that_nobody_fills_are_left_out() -> None:
    rows = tuple(row(n, gpu="", gpu_index=None, init="", network="", op_counts={}) for n in range(3))
    text = shown(stuck_report(ranks=rows))
    assert "NCCL init" not in text
    assert "GPU  " not in text


def test_an_init_that_never_completed_is_said() -> None:
    assert "never complete" in shown(stuck_report(ranks=(row(0, init="started"),)))


def test_the_chain_keeps_the_cause_however_much_else_there_is() -> None:
    noise = tuple(
        TimelineEvent(
            time_s=BEGIN + n, role="cascade", text=f"noise {chr(97 + n % 26)}{n // 26}", code=f"X{n:03}", rank=n
        )
        for n in range(300)
    )
    root = TimelineEvent(time_s=BEGIN + 500, role="root", text="the cause", rank=9, code="R001")
    report = stuck_report(timeline=(*noise, root))
    assert report.summary is not None
    links, more = chain(report.summary)
    assert len(links) == 10
    assert links[-1].first is root
    assert more == 291
    assert "+291 more" in shown(report)


def test_a_line_that_only_repeats_a_death_is_no_link() -> None:
    text = "failed (exitcode: -9) local_rank: 1"
    pair = (
        TimelineEvent(time_s=BEGIN, role="death", text=text, rank=1),
        TimelineEvent(time_s=BEGIN, role="record", text=text, code="ELA001", is_echo=True),
    )
    report = stuck_report(timeline=pair)
    assert report.summary is not None
    assert [link.first.role for link in chain(report.summary)[0]] == ["death"]


def test_times_of_several_days_have_their_date() -> None:
    two = (
        TimelineEvent(time_s=BEGIN, role="root", text="a", code="A001"),
        TimelineEvent(time_s=BEGIN + 86_400, role="death", text="b", rank=1),
    )
    text = shown(stuck_report(timeline=two))
    assert "2026-01-02 03:04:05" in text
    assert "2026-01-03 03:04:05" in text


@cases("strange", [float("nan"), float("inf"), 1e300, -1e300, None])
def test_strange_times_are_unknown(strange: float | None) -> None:
    assert clock(strange) == "–"
    assert shown(stuck_report(timeline=(TimelineEvent(time_s=strange, role="root", text="a"),)))
    assert onset_s(stuck_report(onset_s=12.0)) == 12.0


def test_a_fault_time_that_is_none_makes_no_onset() -> None:
    report = stuck_report()
    assert report.verdict is not None
    assert onset_s(report) == BEGIN + 10
    for time_text in (None, "yesterday"):
        assert onset_s(replace(report, verdict=replace(report.verdict, fault_time=time_text))) is None


def test_what_happened_is_told_in_both_languages_and_foreign_words_stay() -> None:
    assert event_text(WELL, "zh") == "正常结束"
    assert event_text(died("", exit_code=-9), "zh") == "退出码 -9"
    assert event_text(died("ValueError: ended well"), "zh") == "ValueError: ended well"
    assert event_text(STUCK, "en", of_group=True) == "enters all_reduce #64 of default_pg and never completes it"
    position = GroupPosition(
        group="TP",
        source="ras",
        enqueued=65,
        completed=63,
        waits=replace(STUCK, operation="send", seq=2),
        error="remote exited",
    )
    assert came(position, "zh") == "已入队 65，已完成 63，卡在 send #2，remote exited"
    assert doing(row(1, site="a.py:1 f"), "zh") == "等待 GPU (a.py:1 f)"
    assert doing(row(1, activity_kind="something", site="new"), "en") == "something (new)"


@pytest.mark.thorough
@cases("payload", PAYLOADS)
@cases("colour", [False, True])
def test_a_strangers_text_in_a_run_cannot_steer_the_terminal(payload: str, colour: bool) -> None:
    for everywhere in (False, True):
        strange = changed(whole_report(), lambda s: s + payload, everywhere=everywhere)
        for verbose in (0, 1, 2):
            text = shown(strange, "zh", colour=colour, verbose=verbose)
            assert all(c == "\n" or c.isprintable() for c in SGR.sub("", text))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_line_is_never_wider_than_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    for language in ("en", "zh"):
        terminal = Terminal()
        show(whole_report(), language=language, stream=terminal, verbose=1)
        assert max(width(SGR.sub("", line)) for line in terminal.getvalue().splitlines()) <= columns


def test_4096_ranks_and_4000_events_are_shown_quickly_and_in_few_lines() -> None:
    report = big_report()
    text, took_s = timed(lambda: shown(report), enough_s=3)
    assert took_s < 3
    assert len(text.splitlines()) < 80
    assert "Ranks (4096)" in text


def big_report() -> Report:
    """4,096 ranks of which each tenth counts otherwise, 4,000 events."""
    rows = tuple(
        row(n, op_counts={"all_reduce": 34 - (n % 10 == 0), "all_gather": n % 97}, end=replace(STUCK, seq=n % 50))
        for n in range(4096)
    )
    told = tuple(
        TimelineEvent(
            time_s=BEGIN + n / 7,
            role=("cascade", "record", "root", "death")[n % 4],
            text=f"line {n} " + "x" * 280,
            rank=n,
            node=n // 8,
            code=f"C{n % 300:03}",
            source=f"run/out.{n}:{n}",
        )
        for n in range(4000)
    )
    return stuck_report(4096, ranks=rows, timeline=told)
