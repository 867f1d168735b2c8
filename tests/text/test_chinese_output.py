"""What a reader of Chinese sees is Chinese: words of English stand in quoted lines, commands and names alone.

Two tests look for what is left, each without a list of sentences.  The first reads whole reports on recorded runs: a
run of English words must stand in the files that were read, in a command, or in a Chinese text of ours that has it on
purpose.  The second reads the sources: a field that people read takes a sentence as a template and its values, which
can be said in any language, and no text that is put together where it is found.
"""

import ast
import re
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from allready.cli.main import main
from allready.report.json_report import decode
from tests.text.sources import TEXT, nodes, trees

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUNS = (
    "runs_cpu/gloo_exception.tar.xz", "runs_cpu/start_name.tar.xz", "runs_cpu_two_nodes/barrier_rank0.tar.xz",
    "flight/sigstop", "h200/two_nodes_killed.node0.json",
)  # fmt: skip
ENGLISH = re.compile(r"(?<![\w./@-])[A-Za-z]{2,}(?:[ ,]+[a-z]{2,})+")
SENTENCE = re.compile(r"\b[A-Za-z]*[a-z]{2,}(?:[ ,]+[a-z]{2,})+\b")

READ = {
    "detail", "why", "error", "problem", "step", "doing", "what", "how", "reason", "notes", "note", "text", "outcome",
    "words", "ending",
}  # fmt: skip
"""Arguments that become what people read."""
UNREAD = {
    "Gather", "Suspicion",  # between agents and the monitor, for the debug log
    "in_daemon_thread",  # names of threads
    "RankExcluded", "lose",  # an exception in the user's script, in English as all of Python's
    "record",  # of the lab's own truth
}  # fmt: skip
AS_IT_IS = {
    "policy drop", "nft -j list ruleset:  0 :  0 ", "State: t (tracing stop)",  # as another program prints it
    " 0  more ports as good",  # in report.json alone
    "world size", "timed out",  # words that `zh_CN/rules/words.toml` has
}  # fmt: skip


def bare(text: str) -> str:
    """On one line, as the runs of words are looked for."""
    return re.sub(r"\s+", " ", text)


def contents(path: Path) -> Iterator[bytes]:
    """Every file of a recording."""
    if path.suffix == ".xz":
        with tarfile.open(path) as tar:
            yield from (file.read() for member in tar if (file := tar.extractfile(member)) is not None)
    else:
        yield from (file.read_bytes() for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())


@cache
def own_texts() -> str:
    """Chinese texts, which keep some terms in English."""
    tables = "\n".join(path.read_text(encoding="utf-8") for path in sorted((TEXT / "zh_CN").rglob("*.toml")))
    return bare(tables)


@pytest.mark.parametrize("name", RUNS)
def test_a_report_has_no_english_but_what_it_quotes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.json"
    main(["diagnose", "--lang", "zh", "-v", str(FIXTURES / name), "--json", str(target)])
    shown = capsys.readouterr().out
    report = decode(target.read_bytes())
    commands = " ".join(step.command for finding in report.findings for step in finding.remedies)
    assert re.search(r"[\u4e00-\u9fff]", shown)
    quoted = (
        bare("\n".join(data.decode(errors="replace") for data in contents(FIXTURES / name)))
        + own_texts()
        + bare(commands)
    )
    words = {bare(run) for line in shown.splitlines() if "：" in line for run in ENGLISH.findall(line)}
    left = sorted(run for run in words if run not in quoted and not run.startswith("allready "))
    assert left == []


def said_in(node: ast.expr) -> Iterator[str]:
    """The texts that an expression puts together, with 0 for their values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(v.value) if isinstance(v, ast.Constant) else " 0 " for v in node.values)
    elif isinstance(node, ast.IfExp):
        yield from (*said_in(node.body), *said_in(node.orelse))
    elif isinstance(node, ast.BoolOp):
        yield from (text for value in node.values for text in said_in(value))


def test_no_field_that_people_read_takes_a_sentence_in_english() -> None:
    found = []
    for place, tree in trees().items():
        for call in nodes(tree, ast.Call):
            if (name := getattr(call.func, "id", getattr(call.func, "attr", ""))) in UNREAD:
                continue
            texts = [t for k in call.keywords if k.arg in READ for t in said_in(k.value)]
            found += [f"{place}:{call.lineno}: {name}: {t}" for t in texts if SENTENCE.search(t) and t not in AS_IT_IS]
    assert not found, "\n".join(["say it as `said(form, name=value)`, see judging/stated.py:", *found])
