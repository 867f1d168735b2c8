"""The parser of a command: short errors that suggest the nearest option, and help in the reader's language."""

import argparse
import difflib
from collections.abc import Sequence
from typing import NoReturn

from allready.text.usage import usage_text


class Parser(argparse.ArgumentParser):
    """As argparse's, but a mistake is one or two lines and not the whole usage."""

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """As `parse_args`; of what no option takes the nearest option is suggested."""
        parsed, rest = self.parse_known_args(arguments)
        if rest:
            known = [option for option in self._option_string_actions if option.startswith("--") and "_" not in option]
            near = difflib.get_close_matches(rest[0].partition("=")[0], known, n=1)
            hint = usage_text("; did you mean {option}?", option=near[0]) if near else ""
            self.error(usage_text("unknown arguments: {words}", words=" ".join(rest)) + hint)
        return parsed

    def error(self, message: str) -> NoReturn:
        see = usage_text("all options: {command} --help", command=self.prog)
        self.exit(2, f"{self.prog}: {message}\n{see}\n")


def localize(parser: argparse.ArgumentParser) -> None:
    """Translate a parser with all its commands; argparse's own messages for this process."""
    setattr(argparse, "_", usage_text)  # noqa: B010 - argparse asks gettext by this name, which typeshed does not have
    _localize(parser)


def _localize(parser: argparse.ArgumentParser) -> None:
    parser.description = parser.description and usage_text(parser.description)
    parser.epilog = parser.epilog and usage_text(parser.epilog)
    for group in parser._action_groups:  # noqa: SLF001 - argparse has no public list of what it shows
        group.title = group.title and usage_text(group.title)
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for choice in action._choices_actions:  # noqa: SLF001
                choice.help = choice.help and usage_text(choice.help)
            for command in action.choices.values():
                _localize(command)
        elif action.help and action.help != argparse.SUPPRESS:
            action.help = usage_text(action.help)
