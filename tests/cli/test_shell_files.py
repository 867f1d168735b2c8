"""What is made from the parsers: completion of shells, the manual page; and short and whole help."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allready.cli.completion import WRITERS, all_commands
from allready.cli.main import COMMANDS, main
from allready.cli.man import page
from allready.launch.flag_table import FLAGS
from allready.text import usage
from tests.cases import cases

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _in_english() -> Iterator[None]:
    """A command that ran in this process before may have left it speaking Chinese."""
    before = "zh" if usage.is_translated() else "en"
    usage.speak("en")
    yield
    usage.speak(before)


def printed(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "allready", *words], capture_output=True, text=True, timeout=LIMIT_S, check=True
    ).stdout


@pytest.fixture(scope="module")
def bash_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "allready.bash"
    path.write_text(printed("completion", "bash"))
    return path


def bash_offers(file: Path, *words: str, cwd: Path | None = None) -> set[str]:
    """What bash offers for the last of these words."""
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _allready; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", str(file), "allready", *words],
        capture_output=True, text=True, timeout=LIMIT_S, check=True, cwd=cwd,
    )  # fmt: skip
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_and_values(bash_file: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()

    def offers(*words: str) -> set[str]:
        return bash_offers(bash_file, *words, cwd=tmp_path)

    assert offers("") >= set(COMMANDS)
    assert offers("dia") == {"diagnose"}
    assert offers("run", "--node-r") == {"--node-rank"}
    assert offers("run", "--on-hang", "") == {"report", "abort", "restart"}
    assert offers("run", "--on-hang", "ab") == {"abort"}
    assert offers("env", "") == {"explain", "lint", "preset"}
    assert "--json" in offers("env", "lint", "--")
    assert offers("completion", "") == {"bash", "fish", "zsh"}
    assert offers("run", "--nnodes", "2", "tr") == {"train.py"}
    assert offers("run", "train.py", "--no") == set(), "what stands behind the script is the script's"


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_completes_commands_options_and_values(tmp_path: Path) -> None:
    file = tmp_path / "allready.fish"
    file.write_text(printed("completion", "fish"))

    def offers(line: str) -> set[str]:
        done = subprocess.run(
            ["fish", "-c", f"source {file}; complete -C '{line}'"],
            capture_output=True, text=True, timeout=LIMIT_S, check=True, env=os.environ | {"HOME": str(tmp_path)},
        )  # fmt: skip
        return {row.partition("\t")[0] for row in done.stdout.splitlines()}

    assert offers("allready ") >= set(COMMANDS)
    assert offers("allready run --on-hang ") == {"report", "abort", "restart"}
    assert "--node-rank" in offers("allready run --node")
    assert offers("allready env ") >= {"explain", "lint", "preset"}


@cases("shell", sorted(WRITERS))
def test_what_is_made_is_valid_for_its_shell(shell: str, tmp_path: Path) -> None:
    text = WRITERS[shell](list(all_commands()))
    for flag in FLAGS:
        if not flag.hidden:
            assert flag.name in text
    if shutil.which(shell) is None:
        return
    (tmp_path / "file").write_text(text)
    done = subprocess.run([shell, "-n", "file"], cwd=tmp_path, capture_output=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_manual_has_every_command_and_every_option() -> None:
    text = "\n".join(page()).replace("\\-", "-")
    for name in COMMANDS:
        assert f"ALLREADY {name.upper()}" in text
    for flag in FLAGS:
        assert flag.hidden or f"--{flag.name}" in text
    assert not re.search(r"^[^.\n]*\n'(?!\\)", text, re.MULTILINE)
    assert "numa-binding" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_the_manual_is_valid_roff() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-z"], input="\n".join(page()) + "\n", capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--lang", "en"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_is_short_and_help_all_has_everything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    short, whole = help_of(capsys, "run", "--help"), help_of(capsys, "run", "--help-all")
    assert short.startswith("usage: allready run [OPTION ...] SCRIPT ...\n")
    assert whole.startswith("usage: allready run [OPTION ...] SCRIPT ...\n")
    assert short.count("\n") < 90
    assert "--node_rank" not in short
    assert "no effect" not in short
    for flag in FLAGS:
        assert flag.hidden or all(spelling in whole for spelling in flag.spellings)
    for name in ("nnodes", "nproc-per-node", "node-rank", "master-addr", "hosts", "max-restarts", "on-hang"):
        assert f"--{name}" in short


@pytest.mark.thorough
@cases("command", [name for name in COMMANDS if name != "lab"])
def test_every_command_has_both_helps(command: str) -> None:
    for option in ("--help", "--help-all"):
        text = printed(command, option, "--lang", "en")
        assert text.startswith(f"usage: allready {command} [OPTION ...]")
        assert "--help-all" in text


@cases(
    ("words", "meant"),
    [
        (("chek",), "check"),
        (("run", "--node-rnk", "1", "x.py"), "--node-rank"),
        (("env", "lnit"), "lint"),
        (("run", "--framework", "jaxx", "x.py"), "jax"),
        (("lab", "fault", "apply", "slow_lnk", "node=0"), "slow_link"),
        (("lab", "run", "--fault", "sigstp", "rank=1", "--", "x"), "sigstop"),
    ],
)
def test_a_mistyped_word_is_suggested(
    words: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLREADY_LANG", "en")
    try:
        code = main([*words])
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_the_page_and_the_completion_are_in_the_language_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argparse, "_", argparse._)  # type: ignore[attr-defined]
    usage.speak("zh")
    try:
        chinese, completion = "\n".join(page()), WRITERS["fish"](list(all_commands()))
    finally:
        usage.speak("en")
    assert ".SH 命令" in chinese
    assert "有故障" in chinese
    for english in ("show this help message", "check this machine alone", "Exit codes", "start a job in place"):
        assert english not in chinese
        assert english not in completion
