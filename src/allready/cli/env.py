"""`allready env`: what variables mean, which settings are wrong, and which are right for this machine."""

import argparse
from collections.abc import Callable

from allready.cli import env_explain, env_lint, env_preset
from allready.cli.main import EXIT_USAGE

EPILOG = """\
  allready env explain NCCL_IB_TIMEOUT                  what it is, who reads it, what goes wrong with it
  allready env explain NCCL_SOCKET_IFNAME --value ^lo   what this value means on this machine
  allready env lint                                     this environment
  allready env lint train.sh job.sbatch Dockerfile      what files assign, each finding with its line
  allready env lint --compare node0.env node1.env       settings that differ between nodes
  allready env preset ethernet --peers gpu1,gpu2        settings for one purpose, computed for this machine
Exit codes: 0; 1 an error among the findings; 2 usage; 3 a file could not be read as what it is.
"""
_RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    "explain": env_explain.run,
    "lint": env_lint.run,
    "preset": env_preset.run,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `env` and its three commands."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="env_command", metavar="COMMAND")
    for name, module, text in (
        ("explain", env_explain, "the page of a variable, and what a value of it means here"),
        ("lint", env_lint, "settings that are wrong: in this environment, in files, or between nodes"),
        ("preset", env_preset, "settings for one purpose, computed for this machine"),
    ):
        own = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        module.add_arguments(own)
        own.add_argument("--lang", choices=("en", "zh"), help="language (default: from the locale)")


def run(args: argparse.Namespace) -> int:
    """Run one of the three; its exit code, or 2 when none is named."""
    if args.env_command is None:
        print(EPILOG, end="")
        return EXIT_USAGE
    return _RUN[args.env_command](args)
