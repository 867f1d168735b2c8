import re
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.model import Happening, RankRow, Report, RunEvent, SourceRecord, StackGroup, TimelineEvent
from allready.report.html import render
from allready.report.run_words import rows_of
from allready.report.timeline import EDGE_PX, LEFT, RIGHT, axis_of, timeline
from tests.cases import cases
from tests.clock import timed
from tests.report.hostile import PAYLOADS, changed
from tests.report.made_up import faulty_report
from tests.report.made_up_run import BEGIN, WELL, died, row, stuck_report, well_report, whole_report
from tests.report.test_html import Seen
from tests.report.test_run_terminal import big_report

pytestmark = pytest.mark.thorough

REPORTS = {"whole": whole_report(), "stuck": stuck_report(), "well": well_report()}


@cache
def allowed() -> set[tuple[str, str]]:
    return set().union(*(Seen(render(report)).vocabulary for report in (*REPORTS.values(), faulty_report())))


@cache
def plain(name: str) -> list[tuple[str, tuple[str, ...]]]:
    return Seen(render(changed(REPORTS[name], lambda s: s + "x"))).shape


def drawn(report: Report) -> dict[str, Any]:
    found = timeline(report)
    assert found is not None
    return found


@cases("name", REPORTS)
@cases("language", ["en", "zh"])
def test_the_page_is_well_formed_and_asks_the_network_for_nothing(name: str, language: str) -> None:
    page = render(REPORTS[name], language=language)
    seen = Seen(page)
    assert len(seen.scripts) == 1
    assert all(re.fullmatch(r"#f\d+|#c-[A-Z]{3}\d{3}", a) and a[1:] in seen.ids for a in seen.addresses)
    without_hashes = re.sub(r"sha256-[\w+/=]+", "", page)  # whose letters are any
    assert not re.search(r"https?:|//[a-z]|url\(|@import|javascript:", without_hashes)
    assert not any(attribute.startswith("on") or attribute == "style" for _, attribute in seen.vocabulary)
    assert len(seen.ids) == len(set(seen.ids))
    assert "StrictUndefined" not in page


def test_everything_that_a_person_must_see_is_in_the_page() -> None:
    text = Seen(render(whole_report())).text
    for part in (
        "gpu0:1001",
        "nccl 2.28.9",
        "-> 2 P2P/CUMEM x2",
        "libnccl-net.so",
        "eth0 10.0.0.1",
        "docker0",
        "mlx5_0:1/RoCE",
        "2 coll",
        "AllReduce RING/SIMPLE ×12",
        "AllGather: opCount 40 (run/nccl.1.log:148)",
        "default_pg (flight recorder): 65 enqueued, 63 completed, waits in all_reduce #64 (34 all_reduce, 31",
        "init total 370 ms",
        "idle in the user's code (train.py:20 <module>)",
        "Xid 79: GPU has fallen off the bus",
        "run/dmesg:7",
        "broken JSON, repaired",
        "what is this",
        "NCCL_P2P_DISABLE",
        "may explain a fault",
        "busbw up to 375 GB/s",
        "usual: 2 all_reduce",
        "the fault began 03:04:15",
        "gpu1 is 120 ms ± 4 ms ahead",
        "1 line has no time",
    ):
        assert part in text, part


def test_the_page_is_chinese_where_the_reader_is() -> None:
    text = Seen(render(whole_report(), language="zh")).text
    for part in (
        "时间线",
        "各 rank 情况",
        "日志行",
        "来源",
        "起因：可能是最初的原因",
        "故障始于 03:04:15",
        "选用的 HCA",
        "已入队 65，已完成 63，卡在 all_reduce #64",
        "可能导致故障",
        "迭代",
    ):
        assert part in text


def test_a_code_links_to_its_finding_also_where_that_is_folded() -> None:
    page = render(whole_report())
    seen = Seen(page)
    number = next(
        n
        for n in range(1, 7)
        if re.search(rf'id="f{n}">\s*<div class="meta">.*<span><a href="#c-NLG019">NLG019</a></span>', page)
    )
    assert f'<a href="#f{number}">NLG019</a>' in page
    assert '<a href="#f' not in page.partition(">KRN001<")[0][-20:]
    assert page.index('class="folded"') < page.index(f'id="f{number}"')
    assert "lines that look bad and explain nothing (3)" in seen.text


def test_lines_that_many_ranks_say_take_one_row_and_those_of_few_one_each() -> None:
    page = render(stuck_report())
    assert page.count('<tr data-role="harmless">') == 1
    assert page.count('<tr data-role="operation">') == 2  # seven that got stuck, and one initialisation
    assert "run/out.0:5 … +7" in page
    assert "run/fr_0 … +6" in page
    few = tuple(m for m in whole_timeline() if m.rank is None or m.rank < 4)
    assert render(stuck_report(timeline=few)).count('<tr data-role="operation">') == 4


def test_a_node_in_the_timeline_is_named_in_the_language_of_the_page() -> None:
    assert '<tspan class="en" lang="en">node</tspan><tspan class="zh" lang="zh-CN">节点</tspan> 0 (gpu0)' in render(
        stuck_report()
    )


def test_the_timeline_stands_right_below_the_answer() -> None:
    page = render(stuck_report())
    order = [page.index(part) for part in ("<h1", 'class="timeline"', 'class="tiles"', 'class="finding')]
    assert order == sorted(order)


def test_of_64_ranks_those_that_show_the_same_share_a_lane_and_a_row() -> None:
    report = stuck_report(64)
    found = drawn(report)
    assert [lane["label"] for lane in found["lanes"]] == [
        "0 (gpu0)",
        "rank 0",
        "rank 1",
        "rank 2",
        "rank 3",
        "rank 4-63 (60)",
    ]
    assert (found["num_drawn"], found["num_ranks"]) == (64, 64)
    page = render(report)
    rows = page.partition('<table class="ranks">')[2].partition("</table>")[0]
    assert rows.count("<tbody>") == 2
    assert "rank 63: gpu15:1063" in rows
    assert "16 hosts · 63 processes" in rows


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    plain_rows = tuple(RankRow(rank=n, node=0, end=WELL) for n in range(4))
    page = render(stuck_report(ranks=plain_rows))
    head = page.partition('<table class="ranks">')[2].partition("</thead>")[0]
    assert head.count("<th ") == 3
    assert "NCCL init" in render(stuck_report())


def test_a_run_of_which_nothing_is_known_has_no_rows_and_no_zeros() -> None:
    nothing = tuple(RankRow(rank=n, node=0) for n in range(4))
    agents = SourceRecord(path="agents", kind="live", size_bytes=0, num_lines=0)
    report = stuck_report(ranks=nothing, timeline=(), sources=(agents,), num_sources=1, num_bytes=0, num_lines=0)
    assert report.summary is not None
    summary = replace(report.summary, num_understood=0, num_unknown=0, num_operations=0, clocks=())
    text = Seen(render(replace(report, summary=summary))).text
    assert "nothing known" not in text
    assert "0 B" not in text
    assert "not understood" not in text
    assert "nothing known" in Seen(render(stuck_report(ranks=(*nothing, row(4))))).text


def test_saved_stacks_are_in_the_page_those_of_the_culprit_first_and_open() -> None:
    stacks = (
        StackGroup(ranks=(0, *range(2, 8)), frames=("c10d.py:3 all_reduce", "train.py:9 <module>")),
        StackGroup(ranks=(1,), frames=("train.py:20 <module>",), activity_kind="sleep", source="rank1/stacks.txt:2"),
        StackGroup(ranks=(8,), frames=("x.py:1 f",), num_left_out=5),
    )
    page = render(stuck_report(stacks=stacks))
    found = re.findall(r'<details class="stack"( open)?><summary><b>rank ([^<]*)</b>', page)
    assert found == [(" open", "1"), ("", "0,2-7"), ("", "8")]
    text = Seen(page).text
    for part in ("train.py:20 <module>", "c10d.py:3 all_reduce", "rank1/stacks.txt:2", "… +5"):
        assert part in text
    assert 'class="stack"' not in render(stuck_report())


def test_without_a_script_every_line_is_there_and_the_filter_is_not() -> None:
    page = render(stuck_report())
    assert '<p class="filter" hidden>' in page
    assert not re.search(r"<tr data-role[^>]*hidden", page)


def test_a_check_has_no_run_on_its_page() -> None:
    page = render(faulty_report())
    assert 'class="timeline"' not in page
    assert 'class="ranks"' not in page


def test_a_run_of_which_only_harmless_lines_are_known_has_no_timeline() -> None:
    assert timeline(well_report()) is None
    assert 'class="timeline"' not in render(well_report())


def test_the_command_is_the_one_that_was_given() -> None:
    assert "<code>allready diagnose</code>" in render(stuck_report())


def test_every_rank_has_a_lane_below_its_node_also_the_silent_one() -> None:
    found = drawn(stuck_report())
    assert [lane["label"] for lane in found["lanes"]] == [
        "0 (gpu0)",
        "rank 0",
        "rank 1",
        "rank 2",
        "rank 3",
        "1 (gpu1)",
        "rank 4",
        "rank 5",
        "rank 6",
        "rank 7",
    ]
    assert [lane["label"] for lane in found["lanes"] if "l-bad" in lane["css"]] == ["rank 1"]


def test_a_line_of_a_node_stands_in_the_nodes_lane_and_one_of_nobody_in_a_lane_of_its_own() -> None:
    loose = TimelineEvent(time_s=BEGIN + 5, role="root", text="somebody's", code="X001")
    found = drawn(stuck_report(timeline=(*whole_timeline(), loose)))
    assert found["lanes"][-1]["label"] == "rank ?"
    root = next(m for m in found["marks"] if m["event"].code == "KRN001")
    assert f" {found['lanes'][0]['y'] - 6:.1f}l" in root["d"]


def whole_timeline() -> tuple[TimelineEvent, ...]:
    summary = stuck_report().summary
    assert summary is not None
    return summary.timeline


def test_operations_are_bars_as_long_as_they_took_and_the_onset_is_a_line() -> None:
    found = drawn(stuck_report())
    stuck = [bar for bar in found["bars"] if bar["css"] == "b-stuck"]
    assert len(stuck) == 7
    assert all(bar["w"] > 300 for bar in stuck)
    assert [bar["css"] for bar in found["bars"] if "init of" in bar["event"].text] == ["b-done"]
    assert found["onset"]["time"] == "03:04:15"
    assert found["onset"]["x"] == stuck[0]["x"]


def test_an_operation_without_an_end_reaches_to_the_end_of_the_drawing() -> None:
    open_ended = TimelineEvent(time_s=BEGIN + 10, role="operation", text="init of x", rank=0, node=0)
    later = TimelineEvent(time_s=BEGIN + 20, role="death", text="x", rank=1, node=0)
    found = drawn(stuck_report(timeline=(open_ended, later)))
    assert found["bars"][0]["x"] + found["bars"][0]["w"] == pytest.approx(RIGHT - EDGE_PX, abs=0.2)


def test_hours_without_events_are_cut_out_and_said_so() -> None:
    fault = tuple(replace(m, time_s=m.time_s + 36_000) for m in whole_timeline() if m.time_s and m.role != "harmless")
    early = TimelineEvent(time_s=BEGIN, role="cascade", text="a hiccup", rank=0, node=0, code="X001")
    report = stuck_report(timeline=(early, *fault))
    found = drawn(report)
    assert [b["text"] for b in found["breaks"]] == ["⁄⁄ 9 h 59 min"]
    stuck = [bar for bar in found["bars"] if bar["css"] == "b-stuck"]
    assert all(bar["w"] > 200 for bar in stuck)
    assert "The axis is cut" in Seen(render(report)).text


def test_lines_far_from_the_fault_are_counted_not_drawn() -> None:
    early = tuple(TimelineEvent(time_s=BEGIN - 9000 + n, role="harmless", text="x", rank=0, node=0) for n in range(3))
    found = drawn(stuck_report(timeline=(*early, *whole_timeline())))
    assert found["outside"] == 12
    assert found["breaks"] == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(min_value=-1e10, max_value=1e10), min_size=1, max_size=30, unique=True))
def test_the_axis_keeps_the_order_of_times_and_stays_inside(times: list[float]) -> None:
    ordered = sorted(times)
    axis = axis_of(ordered)
    places = [axis.x(t) for t in ordered]
    assert all(a <= b + 1e-6 for a, b in pairwise(places))
    assert all(LEFT - 1e-6 <= x <= RIGHT + 1e-6 for x in places)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats()),
            st.one_of(st.none(), st.floats()),
            st.sampled_from(["root", "operation", "?"]),
            st.one_of(st.none(), st.integers(-5, 5)),
            st.one_of(st.none(), st.integers(-5, 5)),
        ),
        max_size=12,
    )
)
def test_no_number_whatever_breaks_the_page(
    told: list[tuple[float | None, float | None, str, int | None, int | None]],
) -> None:
    made = tuple(
        TimelineEvent(time_s=t, duration_s=d, role=role, rank=rank, node=node, text="x")
        for t, d, role, rank, node in told
    )
    page = render(stuck_report(timeline=made))
    assert not re.search(r'="-?(nan|inf)"', page)
    assert Seen(page).unclosed == []


@cases("payload", PAYLOADS)
@cases("name", REPORTS)
def test_no_strangers_text_becomes_markup(name: str, payload: str) -> None:
    page = render(changed(REPORTS[name], lambda s: s + payload))
    assert Seen(page).vocabulary <= allowed()
    assert len(Seen(page).scripts) == 1
    assert "\x1b" not in page
    assert "\u202e" not in page
    page.encode("utf-8")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.sampled_from(PAYLOADS), st.text(min_size=1, max_size=60)), st.sampled_from(sorted(REPORTS)))
def test_whatever_stands_everywhere_the_page_has_only_our_tags(payload: str, name: str) -> None:
    seen = Seen(render(changed(REPORTS[name], lambda s: payload, everywhere=True), language="zh"))
    assert seen.vocabulary <= allowed()
    assert len(seen.scripts) == 1
    assert all(re.fullmatch(r"#f\d+|#c-[A-Z]{3}\d{3}", address) for address in seen.addresses)


def test_more_ranks_than_lanes_draw_those_that_stand_out() -> None:
    rows = tuple(row(n) for n in range(300))
    report = stuck_report(300, ranks=(*rows[:1], replace(rows[1], end=died("ValueError: x")), *rows[2:]))
    assert report.verdict is not None
    guilty = replace(report.verdict.culprits, ranks=(250,))
    found = drawn(replace(report, verdict=replace(report.verdict, culprits=guilty)))
    labels = [lane["label"] for lane in found["lanes"]]
    assert {"rank 1", "rank 250"} <= set(labels)
    assert (found["num_drawn"], found["num_ranks"]) == (300, 300)
    assert len(found["lanes"]) < 64


def test_ranks_that_all_differ_have_lanes_as_long_as_there_is_room() -> None:
    events = tuple(
        TimelineEvent(time_s=BEGIN + n, role="cascade", text=f"error {chr(97 + n % 26)}{n}", rank=n, node=0)
        for n in range(200)
    )
    found = drawn(stuck_report(200, timeline=events))
    assert (found["num_drawn"], found["num_ranks"]) == (64, 200)


def test_4096_ranks_and_4000_events_stay_quick_and_small() -> None:
    report = big_report()
    page, took_s = timed(lambda: render(report), enough_s=6)
    assert took_s < 6
    assert len(page.encode()) < 3_000_000
    text = Seen(page).text
    assert "report.json has all" in text
    assert page.count("<tr data-role=") <= 400
    assert page.count('<line class="lane') <= 3 * 64


def test_many_differences_are_cut_and_counted() -> None:
    one = whole_report().summary
    assert one is not None
    page = render(stuck_report(baseline="good", differences=one.differences * 200))
    assert "… +100" in Seen(page).text
    assert "no difference found" in Seen(render(stuck_report(baseline="good"))).text


def logged(shape: str) -> RunEvent:
    return RunEvent(kind=Happening.LOGGED, shape=shape)


def test_rows_of_lines_of_one_shape_are_counted_together() -> None:
    said = tuple(
        TimelineEvent(time_s=BEGIN + n, role="record", text=f"lost {n}", rank=n, event=logged("lost peer #"))
        for n in range(9)
    )
    other = TimelineEvent(time_s=BEGIN, role="record", text="found 9", rank=9, event=logged("found peer"))
    summary = stuck_report(timeline=(*said, other)).summary
    assert summary is not None
    assert sorted(link.count for link in rows_of(summary)) == [1, 9]
