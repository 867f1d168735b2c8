"""`allready man`: the manual page in roff, made from the parsers of all commands."""

import argparse
import sys
from collections.abc import Iterator

from allready import __version__
from allready.cli.main import COMMANDS, EXIT_HEALTHY
from allready.cli.parser import Formatter, commands_of, parser_of
from allready.text.usage import is_translated, usage_text

EPILOG = """\
  allready man | man -l -                     read it
  allready man > ~/.local/share/man/man1/allready.1
"""
EXIT_CODES = (
    ("0", "healthy"),
    ("1", "a fault, or a finding that is an error"),
    ("2", "usage"),
    ("3", "something necessary could not be checked"),
    ("70", "internal error"),
)
VARIABLES = (
    ("ALLREADY_LANG", "language of messages and reports: en or zh; before LC_ALL, LC_MESSAGES and LANG"),
    ("NO_COLOR, FORCE_COLOR", "never colour, always colour"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""
    del parser


def run(args: argparse.Namespace) -> int:
    """Print it; 0."""
    del args
    sys.stdout.write("\n".join(page()) + "\n")
    return EXIT_HEALTHY


def page() -> Iterator[str]:
    """The lines of the page."""
    yield f'.TH ALLREADY 1 "" "allready {__version__}" "User Commands"'
    about = _text(usage_text("find the rank at fault in distributed PyTorch and JAX jobs"))
    yield from (f".SH {usage_text('NAME')}", f"allready \\- {about}")
    yield from (f".SH {usage_text('SYNOPSIS')}", ".B allready", _text("COMMAND [OPTION ...]"))
    yield f".SH {usage_text('DESCRIPTION')}"
    yield _text(
        usage_text(
            "Finds the rank or node at fault, the cause and the fix when a distributed PyTorch or JAX job fails to "
            "start, hangs, times out or runs slowly."
        )
    )
    yield f".SH {usage_text('COMMANDS')}"
    for name, (_, text) in COMMANDS.items():
        yield from (".TP", f".B {_text(name)}", _text(usage_text(text)))
    for name, (module, text) in COMMANDS.items():
        yield f'.SH "{_text(f"ALLREADY {name.upper()}")}"'
        yield from _command(parser_of(name, module, text))
    yield from _terms(usage_text("EXIT STATUS"), EXIT_CODES)
    yield _text(usage_text("Of allready run: that of the job."))
    yield from _terms(usage_text("ENVIRONMENT"), VARIABLES)


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Everything about a command and its commands; nothing is hidden here."""
    yield _text((parser.description or "").strip() + ("" if is_translated() else "."))
    yield from (".PP", f".B {_text(parser.format_usage().removeprefix(usage_text('usage: ')).strip())}")
    formatter = Formatter(prog=parser.prog)
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if action.help in {None, argparse.SUPPRESS} or isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            continue
        invocation = formatter._format_action_invocation(action)  # noqa: SLF001
        yield from (".TP", f".B {_text(invocation)}", _text((action.help or "").replace("%%", "%")))
    for _, _, command in commands_of(parser):
        yield f'.SS "{_text(command.prog)}"'
        yield from _command(command)
    if parser.epilog:
        yield from (".PP", ".nf", *map(_text, parser.epilog.rstrip().splitlines()), ".fi")


def _terms(title: str, rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield f".SH {title}"
    for name, text in rows:
        yield from (".TP", f".B {_text(name)}", _text(usage_text(text)))
    yield ".PP"


def _text(text: str) -> str:
    """Harmless in roff: backslashes, dashes, and what would be a request at the beginning of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped
