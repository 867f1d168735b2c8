"""What help and usage errors say in English: everything that `text/zh_CN/cli` can translate."""

import argparse
import ast
import importlib
from collections.abc import Iterator
from functools import cache

from allready.cli.main import COMMANDS, INTERNAL_ERROR, USAGE
from allready.cli.man import EXIT_CODES, VARIABLES
from allready.cli.parser import HELP_ALL
from tests.text.sources import nodes, trees

ARGPARSE = (
    "usage: ",
    "%(heading)s:",
    "positional arguments",
    "options",
    "show this help message and exit",
    "argument %(argument_name)s: %(message)s",
    "the following arguments are required: %s",
    "one of the arguments %s is required",
    "not allowed with argument %s",
    "expected one argument",
    "expected at least one argument",
    "ignored explicit argument %r",
    "invalid %(type)s value: %(value)r",
    "invalid choice: %(value)r (choose from %(choices)s)",
)


@cache
def templates() -> dict[str, str]:
    """Every text by its English form, with the place where it stands."""
    found = dict.fromkeys(ARGPARSE, "argparse")
    found |= {USAGE: "allready --help", INTERNAL_ERROR: "cli/main.py", HELP_ALL: "--help-all"}
    found |= dict.fromkeys((text for _, text in (*EXIT_CODES, *VARIABLES)), "allready man")
    for name, (module, text) in COMMANDS.items():
        command = importlib.import_module(module)
        epilog = getattr(command, "EPILOG", None)
        parser = argparse.ArgumentParser(prog=f"allready {name}", description=text, epilog=epilog)
        command.add_arguments(parser)
        found |= dict.fromkeys(_shown(parser), f"allready {name} --help")
    for place, tree in trees().items():
        for node in nodes(tree, ast.Call):
            if isinstance(node.func, ast.Name):
                found |= dict.fromkeys(_asked(node, node.func.id), f"{place}:{node.lineno}")
    return found


def _asked(call: ast.Call, function: str) -> Iterator[str]:
    if function in {"UsageError", "usage_text"} and call.args and isinstance(call.args[0], ast.Constant):
        yield str(call.args[0].value)


def _shown(parser: argparse.ArgumentParser) -> Iterator[str]:
    texts = [parser.description, parser.epilog, *(group.title for group in parser._action_groups)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts += [choice.help for choice in action._choices_actions]
            for command in action.choices.values():
                yield from _shown(command)
        else:
            texts.append(action.help)
    yield from (text for text in texts if text and text != argparse.SUPPRESS)
