"""What a reader of Chinese sees is Chinese: words of English stand in quoted lines, commands and names alone.

These tests look for what is left, each without a list of sentences.  The first reads whole reports on recorded runs,
on a terminal and as a page with what shows under the pointer: a run of English words must stand in the files that were
read, in a command, or in a Chinese text of ours that has it on purpose.  The second reads the pages of a check, and the
third the help of every command.  The last one reads the sources: a field that people read takes a sentence as a
template and its values, which can be said in any language, and no text that is put together where it is found.
"""

import ast
import json
import re
import tarfile
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from allready.cli.main import COMMANDS, main
from allready.model import BusFacts, Import, ImportFacts, Interface, MasterContactFacts, NetFacts
from allready.report.facts_table import rows
from allready.report.html import render
from allready.report.json_report import decode
from allready.report.safe import width
from tests.report.made_up import faulty_report, healthy_report
from tests.text.sources import TEXT, nodes, trees

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUNS = (
    "runs_cpu/gloo_exception.tar.xz", "runs_cpu/start_name.tar.xz", "runs_cpu_two_nodes/barrier_rank0.tar.xz",
    "runs/v2_ok.tar.xz", "flight/sigstop", "h200/two_nodes_killed.node0.json",
)  # fmt: skip
ENGLISH = re.compile(r"(?<![\w./@-])[A-Za-z]{2,}(?:[ ,]+[a-z]{2,})+")
SENTENCE = re.compile(r"\b[A-Za-z]*[a-z]{2,}(?:[ ,]+[a-z]{2,})+\b")

VOID = {"meta", "br", "hr", "img", "input", "link"}

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


class Seen(HTMLParser):
    """What a page shows in Chinese, with what shows under the pointer, a line for each element."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._hidden: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag not in VOID:
            self._hidden.append(tag in {"style", "script", "code"} or known.get("lang") == "en")
        if not any(self._hidden):
            self.lines += [text for name in ("title", "aria-label") if (text := known.get(name))]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and self._hidden:
            self._hidden.pop()

    def handle_data(self, data: str) -> None:
        if not any(self._hidden):
            self.lines.append(data)


def seen(page: str) -> list[str]:
    """The texts of a page in Chinese."""
    reader = Seen()
    reader.feed(page)
    return reader.lines


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
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted((TEXT / "zh_CN").rglob("*.toml"))]
    return bare("\n".join(text for table in tables for text in said_by(table)))


def said_by(entry: object) -> Iterator[str]:
    """The texts of a table, without the English ones by which some are found."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict | list):
        for value in entry.values() if isinstance(entry, dict) else entry:
            yield from said_by(value)


@pytest.mark.parametrize("name", RUNS)
def test_a_report_has_no_english_but_what_it_quotes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, page = tmp_path / "report.json", tmp_path / "report.html"
    main(["diagnose", "--lang", "zh", "-v", str(FIXTURES / name), "--json", str(target), "--html", str(page)])
    shown = capsys.readouterr().out
    report = decode(target.read_bytes())
    commands = " ".join(step.command for finding in report.findings for step in finding.remedies)
    assert re.search(r"[\u4e00-\u9fff]", shown)
    quoted = (
        bare("\n".join(data.decode(errors="replace") for data in contents(FIXTURES / name)))
        + own_texts()
        + bare(commands)
    )
    lines = [line for line in shown.splitlines() if "：" in line]
    assert left_in([*lines, *seen(page.read_text(encoding="utf-8"))], quoted) == []


def left_in(lines: Iterable[str], quoted: str) -> list[str]:
    """Runs of English words that are no quotation."""
    words = {bare(run) for line in lines for run in ENGLISH.findall(line)}
    return sorted(run for run in words if run not in quoted and not run.startswith("allready "))


WORD = re.compile(r"(?<![\w./:@$*=-])[a-z]{2,}(?![\w./:@=*-])")
TERMS = {
    "root", "ms", "lo", "dev", "memlock", "nnodes", "rank", "pid", "up", "down", "busbw", "algbw", "master", "import",
    "allready", "check", "store", "nccl", "numpy", "python", "torch", "vlan", "veth", "bond",
}  # fmt: skip
"""Of the field, and names."""
MADE_UP = {"none", "abababababababab", "probing", "paths", "took"}
"""Names and notes that the tests made up."""
KINDS = ("ethernet", "bridge", "tunnel", "wireless", "vlan", "veth", "bond", "other")
OUTCOMES = (
    "joined", "unresolved", "loopback", "no_route", "refused", "silent", "family_mismatch", "wrong_service",
    "stale_store", "other_job", "rejected", "lost",
)  # fmt: skip
"""Of `MasterContactFacts`."""


def test_the_page_of_a_check_has_no_word_in_english_but_terms() -> None:
    """Single words are found here too: facts, states and outcomes are no more than that."""
    lines = seen(render(healthy_report(), language="zh"))
    assert {word for line in lines for word in WORD.findall(line)} - TERMS - MADE_UP == set()
    under_the_pointer = "0 → 2：被过滤（无响应）；数据端口 10.0.0.3:40002 被过滤，源地址 10.0.0.1（2.0 秒内没有应答）"
    assert under_the_pointer in seen(render(faulty_report(), language="zh"))


def words_of_facts(**facts: object) -> set[str]:
    """English words in Chinese cells."""
    node = {name: json.loads(msgspec.json.encode(fact)) for name, fact in facts.items()}
    found = rows({0: node})
    assert found
    cells = [text for row in found for text in (row.label.text_in("zh"), row.values[0].text_in("zh"))]
    return {word for text in cells for word in WORD.findall(text)} - TERMS


def test_facts_that_are_words_of_ours_are_in_chinese() -> None:
    interfaces = tuple(
        Interface(name=f"x{n}", kind=kind, is_up=True, is_loopback=False, mtu_bytes=1500)
        for n, kind in enumerate(KINDS)
    )
    assert words_of_facts(net=NetFacts(interfaces=interfaces)) == set()
    for iommu in ("off", "passthrough", "translated"):
        assert words_of_facts(bus=BusFacts(iommu=iommu, num_unread=1)) == set()
    for outcome in OUTCOMES:
        contact = MasterContactFacts(outcome=outcome, master_addr="gpu0", master_port=29500)
        assert words_of_facts(master_contact=contact) == set()
    died = Import(module="torch", outcome="died", exit_code=3)
    assert words_of_facts(imports=ImportFacts(modules=(died,))) == set()


@pytest.mark.parametrize("name", [*COMMANDS])
def test_help_in_chinese_has_the_colon_and_the_lines_of_chinese(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            main([name, flag, "--lang", "zh"])
        shown = capsys.readouterr().out
        assert not re.search(r"[\u4e00-\u9fff]:$", shown, re.MULTILINE)
        options = [line for line in shown.splitlines() if line.startswith(" " * 24)]
        assert [line for line in options if width(line) > 80] == []
        cut = [line for line in shown.splitlines() if re.match(r" {24}[，。；：）]", line)]
        assert cut == []


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
