"""The parser of a command: short errors that suggest the nearest option, and help in the reader's language."""

import argparse
import importlib
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any, NoReturn

from allready.text.usage import did_you_mean, is_translated, usage_text

HELP_ALL = "show all options with all their spellings, also those that are seldom needed"


class LineFormatter(argparse.RawDescriptionHelpFormatter):
    """As argparse's, but lines end where the language allows it."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        from allready.report.safe import wrapped  # only help needs it

        return wrapped(" ".join(text.split()), width)


class Formatter(LineFormatter):
    """Options in one spelling each, the one with dashes, and the name of the value once."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        value = "" if action.nargs == 0 else " " + self._format_args(action, action.dest.upper())
        return ", ".join(_spellings(action)) + value


def _spellings(action: argparse.Action) -> list[str]:
    """The spellings of an option that help shows: at most two, with dashes."""
    return ([word for word in action.option_strings if "_" not in word] or list(action.option_strings))[:2]


class _HelpAll(argparse.Action):
    """`--help-all`: everything that there is."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **kwargs)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)
        sys.stdout.write(parser.help_text(LineFormatter(prog=parser.prog), hidden=()))
        parser.exit()


class Parser(argparse.ArgumentParser):
    """As argparse's, but a mistake is one or two lines and not the whole usage, and help shows what is often needed.

    `rare`: options (by dest) that only `--help-all` shows.
    """

    rare: Collection[str] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "exit_on_error": False})
        if self.add_help:
            self.add_argument("--help-all", action=_HelpAll, help=HELP_ALL)

    def format_usage(self) -> str:
        """One line: options are listed below it."""
        words = [_words(action) for action in self._actions if not action.option_strings]
        return f"{usage_text('usage: ')}{' '.join([self.prog, '[OPTION ...]', *words])}\n"

    def format_help(self) -> str:
        return self.help_text(Formatter(prog=self.prog), self.rare)

    def help_text(self, formatter: argparse.HelpFormatter, hidden: Collection[str]) -> str:
        """All help but the options in `hidden` (by dest), with the language's colon behind headings."""
        formatter.add_text(self.description)
        headings = []
        for group in self._action_groups:
            shown = [action for action in group._group_actions if action.dest not in hidden]  # noqa: SLF001
            if shown:
                headings.append(group.title)
                formatter.start_section(group.title)
                formatter.add_arguments(shown)
                formatter.end_section()
        formatter.add_text(self.epilog)
        text = formatter.format_help()
        for heading in headings:  # before Python 3.13 the colon of argparse is not among the texts that it asks for
            text = text.replace(f"\n{heading}:\n", f"\n{heading}{usage_text(':')}\n", 1)
        return f"{self.format_usage()}\n{text}"

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """As `parse_args`; of what no option takes the nearest option is suggested."""
        parsed: argparse.Namespace
        parsed, rest = self.parse_known_args(arguments)
        if rest:
            parsers = [self, *(command for _, _, command in commands_of(self))]
            options = chain.from_iterable(one._option_string_actions for one in parsers)  # noqa: SLF001
            known = [option for option in options if option.startswith("--") and "_" not in option]
            hint = did_you_mean(rest[0].partition("=")[0], known)
            self.error(usage_text("unknown arguments: {words}", words=" ".join(rest)) + hint)
        return parsed

    def parse_known_args(self, *args: Any, **kwargs: Any) -> tuple[Any, list[str]]:
        """As argparse's, but an option has the spellings of help in an error."""
        try:
            return super().parse_known_args(*args, **kwargs)
        except argparse.ArgumentError as error:
            shown = {"/".join(action.option_strings): "/".join(_spellings(action)) for action in self._actions}
            error.argument_name = shown.get(error.argument_name or "", error.argument_name)
            self.error(str(error))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise

    def error(self, message: str) -> NoReturn:
        see = usage_text("all options: {command} --help-all", command=self.prog)
        self.exit(2, f"{self.prog}: {message}\n{see}\n")


def _words(action: argparse.Action) -> str:
    """A positional argument in the usage."""
    if action.nargs in {argparse.REMAINDER, argparse.PARSER}:
        return "..." if action.nargs == argparse.REMAINDER else f"{action.metavar or action.dest} ..."
    name = str(action.metavar or action.dest)
    forms = {"*": f"[{name} ...]", "?": f"[{name}]", "+": f"{name} [{name} ...]"}
    return forms.get(str(action.nargs), name)


def parser_of(name: str, module: str, text: str) -> Parser:
    """The parser of one command, whose module is imported for it, in the language of this process."""
    command = importlib.import_module(module)
    parser = Parser(
        prog=f"allready {name}",
        description=text,
        epilog=getattr(command, "EPILOG", None),
        formatter_class=LineFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    if is_translated():
        localize(parser)
    return parser


def commands_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Name, help and parser of the commands of a command."""
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            for name, command in action.choices.items():
                yield name, helps.get(name, ""), command


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
