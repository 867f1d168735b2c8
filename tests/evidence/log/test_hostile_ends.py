"""Logs of others that only look like good ends, and good ones that look like bad ones: one table for each."""

import io
import re
import time
from datetime import UTC, datetime

import pytest

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.lines.scan import scan
from allready.evidence.log import bars, closing, closing_words, interpret, last_line, later_run, progress, trouble
from allready.model import Confidence, Report, Status
from tests.evidence.log import hostile_ends
from tests.evidence.log.hostile_ends import Files

pytestmark = pytest.mark.thorough


def _report(files: Files) -> Report:
    """As `diagnose` reads files: scanner first, so that a line counts only if it is kept or stands near the end."""
    readings = []
    for at, lines in enumerate(files):
        stream = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
        readings.append(interpret(scan(stream), f"job{at}.out", mtime_s=None))
    return judge_readings(readings, Question(), started=datetime.now(UTC))[0]


def test_what_failed_is_never_called_good() -> None:
    cases = list(hostile_ends.bad())
    assert len(cases) > 150
    assert [name for name, files in cases if _report(files).status is Status.HEALTHY] == []


def test_what_a_training_does_in_between_ends_nothing() -> None:
    reports = {name: _report([lines]) for name, lines in hostile_ends.IN_BETWEEN.items()}
    assert [name for name, report in reports.items() if report.status is not Status.UNKNOWN] == []


def test_good_ends_are_told() -> None:
    reports = {name: _report(files) for name, files in hostile_ends.GOOD.items()}
    assert {name: report.not_checked for name, report in reports.items() if report.status is not Status.HEALTHY} == {}


def test_the_last_words_of_a_shell_are_the_cause() -> None:
    wrong = {}
    for name, (files, code) in hostile_ends.CAUSES.items():
        verdict = _report(files).verdict
        if verdict is None or verdict.code != code or verdict.confidence is Confidence.POSSIBLE:
            wrong[name] = verdict
    assert wrong == {}


def test_a_rank_that_stopped_early_in_a_long_log_is_found() -> None:
    lines = [f"[rank{r}]: step {n}/4000 loss 1.0" for n in range(1, 4001) for r in range(4) if r != 2 or n < 1500]
    report = _report([[*lines, "[rank0]: Training finished."]])
    assert report.status is Status.UNKNOWN
    assert report.not_checked[0].values["total"] == "4000"
    assert 1300 < int(report.not_checked[0].values["done"]) < 1500  # marks are thinned


_ALONE = {"_BAR", "_KERAS", "_LIBRARY", "_STACK"}
"""Tried at the beginning of a line only."""


def _seconds(pattern: re.Pattern[str], text: str, *, is_anchored: bool) -> float:
    began = time.process_time()
    _ = pattern.match(text) if is_anchored else pattern.sub("", text)
    return time.process_time() - began


def test_no_line_takes_long() -> None:
    """The time of each expression grows with the length of a line, not with its square."""
    seeds = (
        "\t",
        "0 ",
        "1/",
        "epoch ",
        "exit with ",
        "finished the all of from ",
        "no aa ",
        "rank lost 5 of 6 ",
        "1%|",
    )
    found = {
        f"{module.__name__}.{name}": pattern
        for module in (bars, closing, closing_words, last_line, later_run, progress, trouble)
        for name, value in vars(module).items()
        if isinstance(
            pattern := value() if module is closing_words and hasattr(value, "cache_info") else value, re.Pattern
        )
    }
    slow = []
    for name, pattern in found.items():
        for seed in seeds:
            is_anchored = name.rpartition(".")[2] in _ALONE
            short, long = (_seconds(pattern, (seed * n)[:n], is_anchored=is_anchored) for n in (500, 8_000))
            if long > 0.03 and long > 60 * short:
                slow.append((name, seed, short, long))
    assert len(found) > 15
    assert slow == []


def test_a_last_line_without_an_end_denies_words_before_it() -> None:
    steps = [f"step {n}/40 loss {9 / n:.3f}" for n in range(1, 41)]
    whole = "".join(f"{line}\n" for line in (*steps, "Training complete.", "removed 4 temporary files")).encode()
    only = "".join(f"{line}\n" for line in (*steps, "Training complete.")).encode()
    ends = (whole, whole[:-7], whole + b"u@node7:~/run$ ", only[:-1])
    found = [interpret(scan(io.BytesIO(text)), "job.out", mtime_s=None).closing for text in ends]
    assert [end is not None and end.is_good for end in found] == [True, False, True, True]


def test_a_shell_s_prompt_is_no_line_that_was_cut_and_a_bar_or_a_percentage_is_no_prompt() -> None:
    for prompt in ("user@gpu01:~/x1$ ", "(env) root@a:/w# ", "$ ", "fish> "):
        assert re.search(last_line._PROMPT, prompt), prompt
    for cut in ("epoch 97%", "12/100 [==>", "[####"):
        assert not re.search(last_line._PROMPT, cut), cut
