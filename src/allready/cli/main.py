"""`allready COMMAND ...`: choose the command, run it, turn its end into an exit code.

Exit codes: 0 healthy; 1 a fault or an error-level finding; 2 usage; 3 something necessary could not be checked;
70 our own bug.
"""

import sys

from allready.proc.priority import hurry  # the rest comes later: on busy CPUs that makes seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SIGINT = 2
EXIT_HEALTHY, EXIT_FAULT, EXIT_USAGE, EXIT_UNCHECKED, EXIT_BUG = 0, 1, 2, 3, 70

COMMANDS = {
    "doctor": ("allready.cli.doctor", "check this machine alone, in 3 s: network, GPUs, limits, software, variables"),
    "check": ("allready.cli.check", "check nodes, network and collectives before a job: run it on every node"),
    "bench": ("allready.cli.bench", "measure the bandwidth of the collectives, as nccl-tests does, without hanging"),
    "run": ("allready.cli.run", "start a job in place of torchrun; name the rank at fault within seconds"),
    "watch": ("allready.cli.watch", "live view of a running job, from another terminal"),
    "diagnose": ("allready.cli.diagnose", "find the cause of a failed run from its logs, dumps and stacks"),
    "explain": ("allready.cli.explain", "print the page of a finding, by its code"),
    "env": ("allready.cli.env", "explain, check and propose environment variables"),
    "bundle": ("allready.cli.bundle", "pack facts, findings and logs for support into one file, without secrets"),
    "mcp": ("allready.cli.mcp", "serve an agent over the Model Context Protocol: read-only tools"),
    "completion": ("allready.cli.completion", "print the completion of a shell: bash, zsh or fish"),
    "man": ("allready.cli.man", "print the manual page, in roff"),
    "schema": ("allready.cli.schema", "print the JSON Schema of report.json"),
    "lab": ("allready.cli.lab", "fault laboratory: network namespaces of this machine as nodes"),
}
PROMPT = {"doctor"}
"""Commands that promise to end in time also on a loaded machine."""
INTERNAL_ERROR = "internal error of allready; please report the lines above"
USAGE = """\
usage: allready COMMAND [OPTION ...]

Finds the rank or node at fault, the cause and the fix when a distributed PyTorch or JAX job fails to start, hangs,
times out or runs slowly.

{commands}

allready COMMAND --help   options of a command (also: allready help COMMAND)
allready --version        version

Exit codes: 0 healthy, 1 fault, 2 usage, 3 something necessary could not be checked, 70 internal error.
"""


def exit_code_of(status: str) -> int:
    """The contract's exit code of a report's status."""
    return {"healthy": EXIT_HEALTHY, "fault": EXIT_FAULT}.get(status, EXIT_UNCHECKED)


def usage() -> str:
    """The text of `allready --help`."""
    from allready.text.usage import usage_text

    rows = "\n".join(f"  {name:10} {usage_text(text)}" for name, (_, text) in COMMANDS.items())
    return usage_text(USAGE, commands=rows)


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run one command; never raises but for SystemExit of argparse (codes 0 and 2)."""
    try:
        return _main(argv)
    except KeyboardInterrupt as error:
        # CPython notes an interrupt that passes through an evaluated text (a namedtuple's, in an import), and would end
        # by the signal in place of the exit code; the next such text takes the note back.
        eval("0")  # noqa: S307
        from allready.text.usage import usage_text

        sys.stderr.write(f"allready: {usage_text('interrupted')}\n")
        is_job = from_command(sys.argv[1:] if argv is None else argv)[:1] == ["run"]
        return 128 + (error.args[0] if error.args else SIGINT) if is_job else EXIT_UNCHECKED


def _main(argv: "Sequence[str] | None") -> int:
    from allready.text.usage import did_you_mean, language_of, speak, usage_text

    arguments = list(sys.argv[1:] if argv is None else argv)
    language = language_of(arguments)
    speak(language)
    given = len(arguments)
    arguments = from_command(arguments)
    asked = language if len(arguments) < given else None
    if arguments[:1] == ["help"] and arguments[1:] and not arguments[1].startswith("-"):
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in {"-h", "--help", "--help-all", "help"}:
        sys.stdout.write(usage())
        return EXIT_HEALTHY if arguments else EXIT_USAGE
    if arguments[0] in {"-V", "--version"}:
        from allready import __version__

        sys.stdout.write(f"allready {__version__}\n")
        return EXIT_HEALTHY
    name = arguments[0]
    if name not in COMMANDS:
        text = usage_text("no command {name!r}; valid: {known}", name=name, known=", ".join(COMMANDS))
        sys.stderr.write(f"allready: {text}{did_you_mean(name, COMMANDS)}\n")
        return EXIT_USAGE
    return _run(name, arguments[1:], asked)


def from_command(arguments: "Sequence[str]") -> list[str]:
    """The arguments from the command on: `--lang zh` may stand before it."""
    first = arguments[0] if arguments else ""
    return list(arguments[2 if first == "--lang" else 1 if first.startswith("--lang=") else 0 :])


def _run(name: str, arguments: list[str], asked: str | None) -> int:
    """`asked`: the language that stood before the command, which holds as if it stood behind it."""
    import importlib

    from allready.cli.parser import parser_of
    from allready.errors import AllreadyError, UsageError
    from allready.text.usage import choose_language, error_text, speak, usage_text

    parser = parser_of(name, *COMMANDS[name])
    parsed = parser.parse(arguments)
    parsed.lang = getattr(parsed, "lang", None) or asked
    speak(choose_language(parsed.lang))
    try:
        return int(importlib.import_module(COMMANDS[name][0]).run(parsed))
    except UsageError as error:
        sys.stderr.write(f"allready {name}: {usage_text(error.template, **error.values)}\n")
        return EXIT_USAGE
    except AllreadyError as error:
        sys.stderr.write(f"allready {name}: {error_text(error)}\n")
        return EXIT_UNCHECKED
    except BrokenPipeError:  # the reader of our output went away, for example `| head`
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_UNCHECKED
    except Exception:  # noqa: BLE001 - the last line of defence turns our bugs into exit code 70
        import traceback

        traceback.print_exc()
        sys.stderr.write(f"allready {name}: {usage_text(INTERNAL_ERROR)}\n")
        return EXIT_BUG


def entry() -> None:
    """Console script."""
    arguments = from_command(sys.argv[1:])
    if PROMPT & set(arguments[:1]):
        hurry()
        from allready.cli.promise import promise

        promise(arguments[1:])
    from allready import garbage
    from allready.cli.interrupts import this_process_ends_here

    garbage.search_seldom()  # what a start makes stays: searching it costs a tenth of a short command
    _have_standard_streams()
    this_process_ends_here()
    if "allready.cli.promise" in sys.modules:
        from allready.text.usage import language_of, translations

        translations(language_of(sys.argv[1:]))  # as long as they are not there its line is English
    code = main()
    garbage.forget_existing()
    sys.exit(code)


def _have_standard_streams() -> None:
    """Open /dev/null for a standard stream that was closed (`>&-`): the next socket would get its number."""
    import os

    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number, which is this one
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False))


if __name__ == "__main__":
    entry()
