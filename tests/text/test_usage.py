"""Help and usage errors in Chinese: what there is fits the English text, and the command line's language decides."""

import os
import re
import subprocess
import sys

import pytest

from allready.cli.main import main
from allready.errors import UsageError
from allready.text.usage import language_of, speak, translations, usage_text
from tests.cases import cases
from tests.text.usage_texts import templates

VALUES = re.compile(r"\{[^{}]+\}|%\(\w+\)[sr]|%[sr]")
OPTIONS = re.compile(r"--[a-z][a-z-]*[a-z]")
CHINESE = re.compile(r"[\u4e00-\u9fff：]")
WORDS = re.compile(r"[A-Za-z]{2}")


def untranslated() -> list[str]:
    """Texts that are more than values and names of options, and that have no Chinese."""
    bare = {text: OPTIONS.sub("", VALUES.sub("", text)) for text in templates()}
    return [text for text, rest in bare.items() if WORDS.search(rest) and text not in translations("zh")]


@cases("english", translations("zh"))
def test_a_chinese_text_fits_its_english_text(english: str) -> None:
    chinese = translations("zh")[english]
    assert english in templates(), "no text in English is like this any more"
    assert sorted(VALUES.findall(chinese)) == sorted(VALUES.findall(english))
    assert set(OPTIONS.findall(chinese)) == set(OPTIONS.findall(english))
    assert english.endswith("\n") == chinese.endswith("\n")
    assert CHINESE.search(chinese) or english == chinese


def test_help_and_usage_errors_without_chinese_are_listed_and_a_release_has_none() -> None:
    missing = [f"{templates()[text]}: {text!r}" for text in untranslated()]
    if os.environ.get("ALLREADY_RELEASE") == "1":
        assert not missing, "\n".join(missing)
    elif missing:
        pytest.skip(f"shown in English until a release, {len(missing)}: {'; '.join(missing[:5])}")


@cases(
    ("arguments", "language"),
    [
        (["check", "--lang", "zh"], "zh"),
        (["check", "--lang=zh"], "zh"),
        (["--lang", "en"], "en"),
        (["run", "--", "train.py", "--lang", "zh"], "en"),
        (["check", "--lang"], "en"),
    ],
)
def test_the_command_line_gives_the_language(arguments: list[str], language: str) -> None:
    environ = {k: os.environ.pop(k) for k in ("ALLREADY_LANG", "LC_ALL", "LC_MESSAGES", "LANG") if k in os.environ}
    try:
        assert language_of(arguments) == language
    finally:
        os.environ.update(environ)


def test_a_language_that_is_not_there_is_refused_in_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLREADY_LANG", "zh")
    assert [language_of(["check", "--lang", asked]) for asked in ("fr", "en", "zh")] == ["zh", "en", "zh"]


def test_a_usage_error_is_shown_in_the_language_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--lang", "zh"]) == 2
    assert "请给出运行留下的文件" in capsys.readouterr().err
    assert main(["diagnose", "--lang", "en"]) == 2
    assert "name files, folders or archives" in capsys.readouterr().err


@cases(
    ("arguments", "is_chinese"),
    [
        (["--lang", "zh", "explain", "HNG001"], True),
        (["--lang=zh", "explain", "HNG001"], True),
        (["--lang", "zh", "env", "explain", "NCCL_DEBUG"], True),
        (["--lang", "zh", "diagnose", "--explain-line", "x"], True),
        (["--lang", "zh", "explain", "HNG001", "--lang", "en"], False),
        (["--lang", "en", "explain", "HNG001"], False),
    ],
)
def test_a_language_before_the_command_holds_for_it(
    arguments: list[str], is_chinese: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) in {0, 3}
    assert bool(re.search("[\u4e00-\u9fff]{2}", capsys.readouterr().out)) == is_chinese


def test_an_unknown_option_is_one_line_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--lang", "en", "--noderank", "1", "train.py"])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert "did you mean --node-rank?" in shown
    assert shown.count("\n") == 2


def test_help_is_chinese_with_lang_zh() -> None:
    argv = [sys.executable, "-m", "allready", "watch", "--help", "--lang", "zh"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "从另一个终端实时查看运行中的作业" in shown
    assert "用法：" in shown


def test_an_error_keeps_its_english_message() -> None:
    speak("zh")
    try:
        assert (
            str(UsageError("{text!r} is not a node; write 0 or node0", text="x"))
            == "'x' is not a node; write 0 or node0"
        )
        assert usage_text("{text!r} is not a node; write 0 or node0", text="x") == "'x' 不是节点；例如 0 或 node0"
        assert str(UsageError("braces {} without values")) == "braces {} without values"
    finally:
        speak("en")
