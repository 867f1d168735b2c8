import io
import re
from typing import Any

import pytest
from msgspec.structs import replace

from allready.model import Culprits, FaultClass, NotChecked, Status
from allready.report.safe import width
from allready.report.terminal import show, wants_colour
from tests.cases import cases
from tests.report.hostile import PAYLOADS, changed
from tests.report.made_up import absent_report, faulty_report, healthy_report, unknown_report
from tests.report.test_course import COURSE

SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(report: Any, language: str = "en", **options: Any) -> str:
    stream = io.StringIO()
    show(report, language=language, stream=stream, **options)
    return stream.getvalue()


def test_the_first_line_is_the_answer_and_the_next_say_who_and_what_to_type() -> None:
    first, second, third, fourth, *_ = shown(absent_report()).splitlines()
    assert first == "✗ FAULT: JOB001 node 2 (gpu2) did not report within 5.0 s: 3 of 4 nodes are here"
    assert second == "  culprit: node 2 (gpu2); rank 4,5"
    assert third.startswith("  fix: on node 2 (gpu2): start the same command with --node-rank 2")
    assert fourth == "  fix: on node 2 (gpu2): check whether it is running: pgrep -af allready"


def test_chinese_is_chinese_from_the_first_line_on() -> None:
    text = shown(absent_report(), "zh")
    assert text.startswith("✗ 故障：JOB001 节点 2 (gpu2) 在 5.0 秒内没有报到")
    assert "处理办法：在节点 2 (gpu2)：用 --node-rank 2" in text
    assert "点名：5.0 秒内 4 个节点到了 3 个；缺席：2 (gpu2) · 迟到：3 (gpu3) +3.3 秒" in text


def test_the_verdict_is_not_said_twice() -> None:
    assert shown(faulty_report()).count("none its ports") == 1


def test_evidence_is_folded_unless_asked_for() -> None:
    assert shown(faulty_report()).count("silent for 2.0 s") == 8
    assert "… +4, see the report" in shown(faulty_report())
    assert shown(faulty_report(), verbose=1).count("silent for 2.0 s") == 12


def test_quiet_leaves_the_verdict_and_what_to_type() -> None:
    assert len(shown(faulty_report(), quiet=True).splitlines()) == 3
    assert shown(healthy_report(), quiet=True) == "✓ HEALTHY: nothing wrong was found on 4 nodes, 8 ranks\n"


def test_a_healthy_report_says_what_was_looked_at_and_claims_no_more() -> None:
    line = shown(healthy_report()).splitlines()[1]
    assert line.startswith("  4 of 4 nodes came · 12 of 12 paths carry data · 8 of 8 stages passed on 8 ranks (nccl)")
    bare = replace(healthy_report(), roll=None, reach=None, collectives=None)
    assert "paths" not in shown(bare)
    assert "stages" not in shown(bare)


def test_the_bandwidth_table_has_the_columns_of_nccl_tests() -> None:
    lines = shown(healthy_report()).splitlines()
    head = next(i for i, line in enumerate(lines) if "algbw" in line)
    assert lines[head].split() == ["size", "time", "algbw", "(GB/s)", "busbw", "(GB/s)", "errors"]
    assert lines[head + 1].split() == ["8", "B", "20", "µs", "0.0004", "0.0007", "0"]


def test_the_matrix_shows_who_cannot_reach_whom_with_a_legend() -> None:
    text = shown(faulty_report())
    assert "    0 1 2 3\n  0   · F S\n  1 ·   F ·\n  2 F F   F\n  3 · · F\n" in text
    assert "F filtered (silence)" in text
    assert "F filtered" not in shown(healthy_report())
    assert "F filtered" not in shown(faulty_report(17))
    assert "  0   · · ·" in shown(healthy_report(), verbose=2)


def test_a_stage_that_hung_names_the_ranks_inside_and_the_state_of_the_others() -> None:
    text = shown(faulty_report())
    assert re.search(r"nccl_init +hung +5 s +0-4,6,7 +none", text)
    assert "rank 5: stopped · entered gloo_barrier · do_signal_stop" in text


def test_what_was_not_checked_is_said_once_per_reason() -> None:
    many = tuple(NotChecked(code=f"NET{i:03}", node=1, why="permission denied") for i in range(9))
    text = shown(replace(healthy_report(), not_checked=many))
    assert "Not checked: permission denied [NET000, NET001, NET002, NET003, NET004, NET005, … +3; nodes: 1]" in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_unknown_and_waiting_say_why(language: str) -> None:
    assert "the probes were interrupted" in shown(unknown_report(), language).splitlines()[0]
    waiting = replace(absent_report(), status=Status.WAITING, verdict=None, findings=())
    assert "2 (gpu2)" in shown(waiting, language).splitlines()[0]
    bare = replace(waiting, roll=None)
    assert shown(bare, language)
    assert shown(replace(bare, status=Status.FAULT), language)


def test_a_part_of_the_roll_makes_nobody_absent() -> None:
    whole = absent_report()
    assert whole.roll is not None
    text = shown(replace(whole, verdict=None, findings=(), roll=replace(whole.roll, partial=True)))
    assert "missing" not in text
    assert "of 4 nodes" not in text
    assert "10.0.0.77" in text


def test_the_files_are_named_last() -> None:
    assert shown(healthy_report(), files=("r/report.json",)).splitlines()[-1] == "written: r/report.json"


def test_a_pipe_gets_no_escape_and_a_terminal_does() -> None:
    assert "\x1b" not in shown(faulty_report())
    terminal = Terminal()
    show(faulty_report(), language="en", stream=terminal)
    assert SGR.search(terminal.getvalue())
    plain = Terminal()
    show(faulty_report(), language="en", stream=plain, colour=False)
    assert "\x1b" not in plain.getvalue()


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_terminal_line_is_never_wider_than_the_terminal(
    columns: int, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for report in (faulty_report(), absent_report(), healthy_report()):
        terminal = Terminal()
        show(report, language=language, stream=terminal)
        assert max(width(SGR.sub("", line)) for line in terminal.getvalue().splitlines()) <= columns


@cases(
    ("environ", "terminal", "answer"),
    [({}, True, True), ({}, False, False), ({"NO_COLOR": "1"}, True, False), ({"NO_COLOR": ""}, True, True),
     ({"FORCE_COLOR": "1"}, False, True), ({"FORCE_COLOR": "0"}, False, False), ({"CLICOLOR_FORCE": "1"}, False, True),
     ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False), ({"TERM": "dumb"}, True, False),
     ({"CLICOLOR": "0"}, True, False)],
)  # fmt: skip
def test_colour_follows_the_conventions(environ: dict[str, str], terminal: bool, answer: bool) -> None:
    assert wants_colour(Terminal() if terminal else io.StringIO(), environ) is answer


@pytest.mark.thorough
@cases("payload", PAYLOADS)
@cases("colour", [False, True])
def test_a_strangers_text_cannot_steer_the_terminal(payload: str, colour: bool) -> None:
    for report in (faulty_report(), absent_report()):
        text = shown(changed(report, lambda s: s + payload, everywhere=True), colour=colour, verbose=2)
        assert all(c == "\n" or c.isprintable() for c in SGR.sub("", text))
        if payload == "[bold red]x[/]":
            assert payload in text


def test_an_ascii_stream_gets_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    show(faulty_report(), language="zh", stream=stream)
    assert b"NET901" in raw.getvalue()


def test_every_fault_class_and_status_has_words() -> None:
    sick = absent_report()
    assert sick.verdict is not None
    for kind in FaultClass:
        assert kind in shown(replace(sick, verdict=replace(sick.verdict, fault_class=kind), findings=()))


def test_many_findings_of_one_rule_are_one_entry_unless_asked_for() -> None:
    report = faulty_report()
    busy = [
        replace(
            report.findings[1], code="LIM005", culprits=Culprits(nodes=(n,)), message=f"node {n} has 2 CPUs", title="x"
        )
        for n in range(4)
    ]
    report = replace(report, findings=(*report.findings, *busy))
    text = shown(report)
    assert text.count("has 2 CPUs") == 1
    assert "3 more of the same [node 1 (gpu1), 2 (gpu2), 3 (gpu3)]" in text
    assert shown(report, verbose=1).count("has 2 CPUs") == 4


def test_the_verdict_says_where_its_page_is_and_a_run_how_it_went() -> None:
    assert "allready explain JOB001" in shown(absent_report())
    text = shown(replace(healthy_report(), course=COURSE))
    assert "Course of the job: 2400 iterations seen, 20 ms each at the median · slowest: rank 3" in text
