"""`allready env`: what variables mean, which settings are wrong, and which are right for this machine."""

import argparse
import importlib

from allready.cli.main import EXIT_USAGE
from allready.cli.options import count, version

COMMANDS = {
    "explain": "the page of a variable, and what a value of it means here",
    "lint": "settings that are wrong: in this environment, in files, or between nodes",
    "preset": "settings for one purpose, computed for this machine",
}
EPILOG = """\
  allready env explain NCCL_IB_TIMEOUT                  what it is, who reads it, what goes wrong with it
  allready env explain NCCL_SOCKET_IFNAME --value ^lo   what this value means on this machine
  allready env lint                                     this environment
  allready env lint train.sh job.sbatch Dockerfile      what files assign, each finding with its line
  allready env lint --compare node0.env node1.env       settings that differ between nodes
  allready env preset ethernet --peers gpu1,gpu2        settings for one purpose, computed for this machine
Exit codes: 0; 1 an error among the findings; 2 usage; 3 a file could not be read as what it is.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `env` and its three commands."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="env_command", metavar="COMMAND")
    made = {name: commands.add_parser(name, help=t, description=t, allow_abbrev=False) for name, t in COMMANDS.items()}
    _explain(made["explain"])
    _lint(made["lint"])
    _preset(made["preset"])
    for own in (made["lint"], made["preset"]):
        for name in ("torch", "nccl", "jax"):
            about = f"version of {name} (default: the one found here)"
            own.add_argument(f"--{name}", metavar="VERSION", type=version, help=about)
    for own in made.values():
        own.add_argument("--lang", choices=("en", "zh"), help="language (default: from the locale)")


def run(args: argparse.Namespace) -> int:
    """Run one of the three; its exit code, or 2 when none is named."""
    if args.env_command is None:
        print(EPILOG, end="")
        return EXIT_USAGE
    return int(importlib.import_module(f"allready.cli.env_{args.env_command}").run(args))


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="variables, flags of XLA, or NAME=VALUE")
    parser.add_argument("--value", metavar="V", help="what this value means on this machine")
    parser.add_argument(
        "--list", nargs="?", const="", metavar="PREFIX", help="list all variables, or those of a family"
    )
    parser.add_argument("--json", metavar="FILE", help="write the pages as JSON (- for standard output, and no text)")


def _lint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="scripts, .env, Dockerfile, manifests, ... (- for stdin)"
    )
    parser.add_argument("--compare", action="store_true", help="the files are the environments of several nodes")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--here", action="store_true", help="judge the files by this machine, whatever their kind")
    place.add_argument("--elsewhere", action="store_true", help="do not judge the files by this machine")
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings as well")
    parser.add_argument(
        "--json", metavar="FILE", help="write the findings as JSON (- for standard output, and no text)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="also what each variable is, and what goes wrong")


def _preset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="which one; without a name they are listed")
    parser.add_argument(
        "--peers", metavar="HOST,...", help="the other nodes: chooses the interface (default: MASTER_ADDR)"
    )
    parser.add_argument("--nproc-per-node", type=count, metavar="N", help="processes per node (default: one per GPU)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--shell", action="store_true", help="export lines, for eval or a script")
    form.add_argument("--json", action="store_true", help="values and reasons as JSON")
    form.add_argument("--dockerfile", action="store_true", help="ENV lines, without what belongs to one machine")
    form.add_argument(
        "--sbatch", action="store_true", help="export lines for a batch script, which runs on other machines"
    )
