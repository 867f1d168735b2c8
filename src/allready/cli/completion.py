"""`allready completion SHELL`: a shell's completion, made from the parsers of all commands."""

import argparse
import sys
from collections.abc import Iterable, Iterator

from msgspec import Struct

from allready.cli.main import COMMANDS, EXIT_HEALTHY
from allready.cli.parser import commands_of, parser_of
from allready.text.usage import usage_text

EPILOG = """\
  bash   allready completion bash > ~/.local/share/bash-completion/completions/allready
  zsh    allready completion zsh > ~/.zfunc/_allready     (with fpath+=~/.zfunc before compinit in ~/.zshrc)
  fish   allready completion fish > ~/.config/fish/completions/allready.fish
"""


class Option(Struct, frozen=True):
    """One option as a shell needs it: one spelling of each length, its help, and what may follow."""

    spellings: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


class CommandEntry(Struct, frozen=True):
    """One command (`env lint` has two words); `choices`: what its first argument may be."""

    words: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    commands: tuple[str, ...]
    choices: tuple[str, ...]
    passes_on: bool  # what follows its first argument belongs to another program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=sorted(WRITERS), metavar="SHELL", help="bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    """Print it; 0."""
    sys.stdout.write(WRITERS[args.shell](list(all_commands())))
    return EXIT_HEALTHY


def all_commands() -> Iterator[CommandEntry]:
    """Every command, and the commands of commands."""
    for name, (module, text) in COMMANDS.items():
        yield from _of(parser_of(name, module, text), (name,), usage_text(text))


def _of(parser: argparse.ArgumentParser, words: tuple[str, ...], text: str) -> Iterator[CommandEntry]:
    inner = list(commands_of(parser))
    positional = [a for a in parser._actions if not a.option_strings]  # noqa: SLF001 - argparse has no public list
    first = positional[0] if positional and not inner else None
    yield CommandEntry(
        words=words,
        help=text,
        options=tuple(_option(a) for a in parser._actions if a.option_strings and a.help != argparse.SUPPRESS),  # noqa: SLF001
        commands=tuple(name for name, _, _ in inner),
        choices=tuple(map(str, first.choices)) if first is not None and first.choices else (),
        passes_on=any(a.nargs == argparse.REMAINDER for a in positional),
    )
    for name, help_, command in inner:
        yield from _of(command, (*words, name), help_)


def _option(action: argparse.Action) -> Option:
    return Option(
        spellings=tuple(word for word in action.option_strings if "_" not in word),
        help=" ".join((action.help or "").replace("%%", "%").split()),
        takes_value=action.nargs != 0,
        choices=tuple(map(str, action.choices)) if action.choices else (),
    )


def bash(commands: list[CommandEntry]) -> str:
    """For bash 4 and newer, with or without the package bash-completion."""
    values, choices, options = [], [], []
    for command in commands:
        name = " ".join(command.words)
        taking = [word for option in command.options if option.takes_value for word in option.spellings]
        if taking:
            values.append(f"    {_patterns(name, taking)}) return 0 ;;")
        choices += [
            f"    {_patterns(name, option.spellings)}) words='{' '.join(option.choices)}' ;;"
            for option in command.options
            if option.choices
        ]
        spelled = " ".join(word for option in command.options for word in option.spellings)
        inner = " ".join(command.commands or command.choices)
        options.append(f'    "{name}") options="{spelled}"; inner="{inner}" ;;')
    return _BASH.format(
        names=" ".join(COMMANDS),
        nested=" ".join(_quoted(" ".join(c.words)) for c in commands if c.commands),
        passing=" ".join(_quoted(" ".join(c.words)) for c in commands if c.passes_on),
        values="\n".join(values),
        choices="\n".join(choices),
        options="\n".join(options),
    )


def _patterns(command: str, words: Iterable[str]) -> str:
    """A pattern of `case` for these options of a command."""
    return "|".join(_quoted(f"{command} {word}") for word in words)


_BASH = """\
# bash completion of allready; made by: allready completion bash
_allready_takes_value() {{
  case "$1 $2" in
{values}
  esac
  return 1
}}

_allready() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
  local command="" is_over="" words="" options="" inner="" i word
  local nested=({nested}) passing=({passing})
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    if [[ $word == -* ]]; then
      if _allready_takes_value "$command" "$word"; then ((i++)); fi
    elif [[ -z $command ]]; then
      command=$word
    elif [[ " ${{nested[*]}} " == *" $command "* ]]; then
      command="$command $word"
    elif [[ " ${{passing[*]}} " == *" $command "* ]]; then
      is_over=1
    fi
  done
  COMPREPLY=()
  if [[ -n $is_over ]]; then
    COMPREPLY=($(compgen -f -- "$cur"))
    return
  fi
  if [[ -z $command ]]; then
    COMPREPLY=($(compgen -W "{names} --help --version --lang" -- "$cur"))
    return
  fi
  case "$command $prev" in
{choices}
  esac
  if [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    return
  fi
  case "$command" in
{options}
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
  elif [[ -n $inner ]] && ! _allready_takes_value "$command" "$prev"; then
    COMPREPLY=($(compgen -W "$inner" -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -o bashdefault -F _allready allready
"""


def zsh(commands: list[CommandEntry]) -> str:
    """For the function path of zsh."""
    parts = ["#compdef allready", "# zsh completion of allready; made by: allready completion zsh", ""]
    for command in commands:
        parts += [f"{_function(command.words)}() {{", *_zsh_body(command, commands), "}", ""]
    parts += [
        "_allready() {",
        "  local state line",
        "  _arguments -C '1: :->command' '*:: :->rest'",
        "  case $state in",
        f"    command) local -a names=({_zsh_names([c for c in commands if len(c.words) == 1])})",
        "      _describe command names ;;",
        "    rest) case $words[1] in",
        *(f"      {c.words[0]}) {_function(c.words)} ;;" for c in commands if len(c.words) == 1),
        "    esac ;;",
        "  esac",
        "}",
        "",
        '_allready "$@"',
    ]
    return "\n".join(parts) + "\n"


def _zsh_body(command: CommandEntry, commands: list[CommandEntry]) -> Iterator[str]:
    inner = [c for c in commands if c.words[:-1] == command.words]
    last = "'1: :->command' '*:: :->rest'" if inner else "'*: :_files'"
    if command.choices:
        last = f"'1: :({' '.join(command.choices)})'"
    elif command.passes_on:
        last = "'1: :_files' '*:: :_default'"
    yield "  local state line"
    yield "  _arguments -C \\"
    for option in command.options:
        for word in option.spellings:
            value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
            yield f"    {_quoted(f'{word}[{_zsh_text(option.help)}]' + (value if option.takes_value else ''))} \\"
    yield f"    {last}"
    if inner:
        yield "  case $state in"
        yield f"    command) local -a names=({_zsh_names(inner)})"
        yield "      _describe command names ;;"
        yield "    rest) case $words[1] in"
        yield from (f"      {c.words[-1]}) {_function(c.words)} ;;" for c in inner)
        yield "    esac ;;"
        yield "  esac"


def _function(words: tuple[str, ...]) -> str:
    return "_allready_" + "_".join(words)


def _zsh_names(commands: list[CommandEntry]) -> str:
    return " ".join(_quoted(f"{c.words[-1]}:{c.help}") for c in commands)


def _zsh_text(text: str) -> str:
    return text.replace("[", "(").replace("]", ")").replace(":", "\\:")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish(commands: list[CommandEntry]) -> str:
    """For fish 3 and newer."""
    parts = ["# fish completion of allready; made by: allready completion fish", ""]
    for command in commands:
        name = command.words[-1]
        seen = " ".join(command.words[:-1])
        before = f"__fish_seen_subcommand_from {seen}" if seen else "__fish_use_subcommand"
        if len(command.words) > 1:
            siblings = [c.words[-1] for c in commands if c.words[:-1] == command.words[:-1]]
            before += f"; and not __fish_seen_subcommand_from {' '.join(siblings)}"
        if len(command.words) < 3:
            parts.append(f"complete -c allready -f -n {_quoted(before)} -a {name} -d {_quoted(command.help)}")
        inside = " ; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.words)
        for option in command.options:
            spelled = " ".join(f"-l {w[2:]}" if w.startswith("--") else f"-s {w[1:]}" for w in option.spellings)
            value = f" -x -a {_quoted(' '.join(option.choices))}" if option.choices else " -r" * option.takes_value
            parts.append(f"complete -c allready -n {_quoted(inside)} {spelled}{value} -d {_quoted(option.help)}")
        if command.choices:
            parts.append(f"complete -c allready -f -n {_quoted(inside)} -a {_quoted(' '.join(command.choices))}")
    return "\n".join(parts) + "\n"


WRITERS = {"bash": bash, "zsh": zsh, "fish": fish}
