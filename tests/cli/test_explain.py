import io
import json
import re
import sys
from pathlib import Path

import pytest

from allready.cli.main import main
from allready.docs import own_steps, page_of
from allready.judging.loading import load
from tests.cases import cases


def out(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["explain", *argv, "--lang", "en"]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["explain", *argv]) == 2
    return capsys.readouterr().err


def test_a_code_gives_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "NET003")
    rule = load()["NET003"]
    lines = text.splitlines()
    assert lines[0] == f"NET003 {rule.title}"
    assert f"  Severity: {rule.severity}" in lines
    assert f"  Fault class: {rule.fault_class}" in lines
    assert f"  Since: {rule.since}" in lines
    headings = ["What it checks", "Why it matters", "Check by hand", "When it is harmless"]
    assert [line.strip() for line in lines if line.strip() in headings] == headings
    assert "ping -M do -s 8972 PEER" in text


def test_the_page_comes_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "NET003", "--lang", "zh"]) == 0
    text = capsys.readouterr().out
    assert "严重程度：警告" in text
    assert "检查内容" in text
    assert "What it checks" not in text


@cases("word", ["mtu_differs", "MTU-differs", "net.mtu_differs", "net003", "mtu_differs.py"])
def test_any_usual_spelling_of_a_code_or_name_is_known(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert out(capsys, word).startswith("NET003 ")


def test_a_signature_is_known_by_its_name_and_shows_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "nccl.no_socket_interface")
    assert text.startswith("NLG001 ")
    assert "Lines that mean it" in text
    assert "NCCL WARN" in text


def test_several_codes_give_several_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.findall(r"^[A-Z]{3}\d{3}", out(capsys, "HNG002", "NET003"), re.MULTILINE) == ["HNG002", "NET003"]


@cases(("word", "code"), [("NET03", "NET003"), ("NETT003", "NET003"), ("mtu_difers", "NET003"), ("mtu", "NET002")])
def test_what_does_not_exist_gets_near_matches(word: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, word)
    assert f"no finding is called {word!r}; did you mean" in error
    assert f"  {code}  " in error


def test_a_name_in_several_areas_is_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    names = [rule.name for rule in load().values()]
    twice = next(name for name in names if names.count(name) > 1)
    error = refused(capsys, twice)
    assert "several findings are called" in error
    assert error.count(f".{twice}:") == names.count(twice)


@cases(
    ("argv", "words"),
    [
        ((), "allready explain --list"),
        (("qqqqqq",), "allready explain --list"),
        (("--list", "nets"), "there are: job, name, port"),
        (("NET003", "--list", "net"), "--list takes one AREA"),
        (("NET003", "--json", "/no/such/folder/x.json"), "No such file"),
    ],
)
def test_what_cannot_be_done_says_what_can(
    argv: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(capsys, *argv)


def test_the_list_has_every_code_once_in_a_pipe_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = out(capsys, "--list").splitlines()
    assert sorted(found[0] for line in lines if (found := re.findall(r"^  ([A-Z]{3}\d{3}) ", line))) == list(load())


def test_the_list_of_one_area_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    lines = out(capsys, "--list", "net").splitlines()
    assert lines[0] == "net"
    assert all(line.startswith("  NET") for line in lines[2:])


def test_a_program_gets_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = json.loads(out(capsys, "NET003", "--json", "-"))
    assert given["schema"] == "allready.codes/1"
    [code] = given["codes"]
    assert (code["code"], code["name"], code["area"]) == ("NET003", "mtu_differs", "net")
    assert list(code["sections"]) == ["What it checks", "Why it matters", "Check by hand", "When it is harmless"]
    target = tmp_path / "codes.json"
    assert out(capsys, "--list", "--json", str(target))
    assert len(json.loads(target.read_text())["codes"]) == len(load())


def test_a_narrow_terminal_gets_wrapped_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "dumb")
    assert main(["explain", "NET003", "--lang", "en"]) == 0
    assert max(len(line) for line in terminal.getvalue().splitlines()) <= 60


def named_in(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def test_commands_that_many_remedies_share_have_names_for_what_a_finding_fills_in() -> None:
    """Of a rule's own steps the placeholders are the rule's; `{pid}` of a shared one would mean nothing to a reader."""
    rules = load()
    for rule in rules.values():
        own = set().union(*(named_in(s.explanation + s.command + s.where) for s in own_steps(rule)))
        for language in ("en", "zh"):
            left = named_in(page_of(rule, language).remedy) - own
            assert not left, f"{rule.code} ({language}): {left}"
    page = page_of(rules["HNG001"], "en").remedy
    assert "find the process of the rank: pgrep -af python" in page
    assert "py-spy dump --pid PID" in page
