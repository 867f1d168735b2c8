"""Logs of which nothing says how they ended, and which read like a good end, or do not."""

import io
import random
import tomllib
from datetime import UTC, datetime
from importlib import resources

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.lines.scan import scan
from allready.evidence.log import closing, interpret, likeness
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


def _table() -> list[dict[str, object]]:
    text = (resources.files("allready.evidence.log") / "likeness.toml").read_text(encoding="utf-8")
    table: list[dict[str, object]] = tomllib.loads(text)["feature"]
    return table


def test_the_table_names_each_feature_that_is_found_and_no_other() -> None:
    measured = [line.replace("dev ppl after", "accuracy of") for line in LOOP]
    logs = [
        ENDED,
        measured,
        [*LOOP, "Training complete."],
        [*LOOP, "Total time: 4 s"],
        [*LOOP, "2/4 of the heads", "the next ones are stored"],
        [*LOOP, *(f"a line of the {word} kind" for word in "abcdefghijklmnopqrstuvwxyz"), "heads stored"],
        ["epochs: 120", *(f"epoch {n} loss {n}.1" for n in range(121)), "done"],
        [*LOOP, "epoch 100", "stored 4/4 heads"],
    ]
    found = {name for lines in logs for name in closing.features(scan(io.BytesIO(_text(lines))))}
    assert found == {one["name"] for one in _table()}
    assert all(one["means"] for one in _table())


def test_the_sum_is_that_of_the_table() -> None:
    known = likeness.weights()
    assert likeness.of({}) == known.start
    name, weight = max(known.by_feature.items(), key=lambda one: one[1])
    assert likeness.of({name: 1.0}) == known.start + weight
    assert likeness.reasons({name: 1.0, "count_open": 1.0}) == (name,)
