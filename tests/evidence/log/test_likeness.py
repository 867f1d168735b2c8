"""Logs of which nothing says how they ended, and which read like a good end, or do not."""

import io
import random
from datetime import UTC, datetime

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret, likeness
from allready.evidence.log.likeness import Says
from allready.model import ClosingKind, Report, Status
from allready.report.words import sentence
from allready.text.catalog import LANGUAGES
from tests.cases import cases

LOOP = [
    line
    for epoch in range(60)
    for line in (
        *(f"ep {epoch} | it {it} | nll {3 / (1 + epoch + it / 10):.4f}" for it in range(8)),
        f"dev ppl after {epoch}: {90 - epoch}.1",
    )
]
OPENING = ["reading corpus wiki-small", "vocabulary of 32000 entries", "model with 41.2M weights on 2 devices"]
BEHIND = ["Curves of all heads: plots/nll.png", "heads ranked by ablation, see plots/heads.csv", "Grazie e a presto"]
ENDED = [*OPENING, *LOOP, *BEHIND]


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _report(*files: bytes) -> Report:
    readings = [interpret(scan(io.BytesIO(text)), f"job{at}.out", mtime_s=None) for at, text in enumerate(files)]
    return judge_readings(readings, Question(), started=datetime.now(UTC))[0]


def _kind(text: bytes) -> ClosingKind:
    end = interpret(scan(io.BytesIO(text)), "job.out", mtime_s=None).closing
    assert end is not None
    return end.kind


def test_lines_behind_a_loop_that_are_new_read_like_an_end() -> None:
    report = _report(_text(ENDED))
    assert report.status is Status.HEALTHY
    assert report.summary is not None
    assert report.summary.closing is not None
    assert report.summary.closing.kind is ClosingKind.LIKE
    said = {language: sentence(report, language) for language in LANGUAGES}
    assert "reads like a good end" in said["en"]
    assert "the name of a file" in said["en"]
    assert all("Grazie" in text for text in said.values())
    assert len(set(said.values())) == len(LANGUAGES)


IN_THE_MIDDLE = {
    "in the loop": [*OPENING, *LOOP],
    "before the loop": OPENING,
    "something begins": [*ENDED, "Loading the test corpus"],
    "something is announced": [*ENDED, "Evaluating on the test corpus:"],
    "the loop goes on": [*ENDED, *LOOP[:30]],
    "too short to tell": [*OPENING, *LOOP[:80], *BEHIND],
    "only new lines behind it": [*ENDED[:-3], "a line of its own", "and another line", "and one more of them"],
    "an error behind it": [*ENDED, "ERROR: no space left on device"],
    "a part of several": ["Fold 1 of 5", *ENDED],
}


@cases("lines", [(lines,) for lines in IN_THE_MIDDLE.values()], ids=list(IN_THE_MIDDLE))
def test_the_middle_of_a_run_does_not(lines: list[str]) -> None:
    assert _kind(_text(lines)) is not ClosingKind.LIKE


def test_a_log_without_its_last_bytes_does_not() -> None:
    text = _text(ENDED)
    assert [cut for cut in range(1, 60) if _kind(text[:-cut]) is ClosingKind.LIKE] == [len(_text(ENDED[-1:]))]


def test_few_cuts_of_a_good_log_read_like_an_end() -> None:
    lines = ENDED[:-3]
    draw = random.Random(17)
    found = [_kind(_text(lines[: draw.randrange(20, len(lines))])) for _ in range(100)]
    assert sum(kind in {ClosingKind.LIKE, ClosingKind.WORDS, ClosingKind.PROGRESS} for kind in found) <= 5


def test_one_of_several_logs_that_stopped_denies_it() -> None:
    assert _report(_text(ENDED), _text(ENDED)).status is Status.HEALTHY
    assert _report(_text(ENDED), _text([*OPENING, *LOOP])).status is Status.UNKNOWN


def test_it_overrules_no_death() -> None:
    killed = [*OPENING, *LOOP, "srun: error: n3: task 5: Killed", *LOOP[:9]]
    assert _report(_text(ENDED), _text(killed)).status is not Status.HEALTHY


SAYS = {
    Says.DONE: ["that much is done"],
    Says.SAVED: ["heads stored", "a line of its own"],
    Says.RESULT: ["accuracy of the best head 0.41"],
    Says.FILE: ["see heads.csv"],
    Says.FULL: ["heads ranked: 12/12"],
}


@cases("says, behind", SAYS.items(), ids=list(SAYS))
def test_each_reason_is_one_by_itself(says: Says, behind: list[str]) -> None:
    assert likeness.of([*LOOP, *behind]) == (says,)
    assert likeness.of([*LOOP, *behind, *LOOP[:2]]) == ()


def test_a_form_that_the_loop_has_hardly_ever_counts_as_one_that_it_never_has() -> None:
    evaluated = [line.replace("dev ppl after", "accuracy of") for line in LOOP]
    assert likeness.of(evaluated) == (Says.RESULT,)
    often = [line for line in evaluated if " it 0 " in line or line.startswith("accuracy")]
    assert likeness.of(often) == ()


def test_a_last_line_without_an_end_denies_words_before_it() -> None:
    steps = [f"step {n}/40 loss {9 / n:.3f}" for n in range(1, 41)]
    whole = _text([*steps, "Training complete.", "removed 4 temporary files"])
    assert _kind(whole) is ClosingKind.WORDS
    assert _kind(whole[:-7]) not in {ClosingKind.WORDS, ClosingKind.PROGRESS, ClosingKind.LIKE}
    assert _kind(whole + b"u@node7:~/run$ ") is ClosingKind.WORDS
    assert _kind(_text([*steps, "Training complete."])[:-1]) is ClosingKind.WORDS
