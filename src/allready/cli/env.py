"""`allready env`: what variables mean, which settings are wrong, and which are right for this machine."""

import argparse
import importlib

from allready.cli.options import add_language, count, version

COMMANDS = {
    "explain": "print the page of a variable, and what a value of it means on this machine",
    "lint": "find wrong settings in this environment, in files, or between nodes",
    "preset": "print settings for one purpose, computed for this machine",
}
EPILOG = """\
  allready env explain NCCL_IB_TIMEOUT                  what it is, who reads it, what goes wrong with it
  allready env explain NCCL_SOCKET_IFNAME --value ^lo   what this value means on this machine
  allready env lint                                     check this environment
  allready env lint train.sh job.sbatch Dockerfile      check files; findings have line numbers
  allready env lint --compare node0.env node1.env       settings that differ between nodes
  allready env preset ethernet --peers gpu1,gpu2        settings for one purpose, computed for this machine
Exit codes: 0; 1 an error among the findings; 2 usage; 3 a file could not be parsed.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `env` and its three commands."""
    commands = parser.add_subparsers(dest="env_command", metavar="COMMAND", required=True)
    made = {name: commands.add_parser(name, help=t, description=t, allow_abbrev=False) for name, t in COMMANDS.items()}
    _explain(made["explain"])
    _lint(made["lint"])
    _preset(made["preset"])
    for own in (made["lint"], made["preset"]):
        for name in ("torch", "nccl", "jax"):
            own.add_argument(f"--{name}", metavar="VERSION", type=version, help="judge for this version of it")
    for own in made.values():
        add_language(own)


def run(args: argparse.Namespace) -> int:
    """Run one of the three; its exit code."""
    return int(importlib.import_module(f"allready.cli.env_{args.env_command}").run(args))


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="variables, XLA flags, or NAME=VALUE")
    parser.add_argument("--value", metavar="V", help="what this value means on this machine")
    parser.add_argument(
        "--list", nargs="?", const="", metavar="PREFIX", help="list all variables, or those of a family"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write the pages as JSON to FILE (- for standard output, without text)"
    )


def _lint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="script, .env, Dockerfile, manifest, /proc/PID/environ, ... (- for standard input)",
    )
    parser.add_argument("--compare", action="store_true", help="compare FILEs, the environments of several nodes")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--here", action="store_true", help="check files against this machine, whatever their kind")
    place.add_argument("--elsewhere", action="store_true", help="do not check files against this machine")
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings as well")
    parser.add_argument(
        "--json", metavar="FILE", help="write the findings as JSON to FILE (- for standard output, without text)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="also show what each variable does")


def _preset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the preset (default: list all presets)")
    parser.add_argument(
        "--peers", metavar="HOST,...", help="other nodes, to choose the interface (default: MASTER_ADDR)"
    )
    parser.add_argument("--nproc-per-node", type=count, metavar="N", help="processes per node (default: one per GPU)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--shell", action="store_true", help="export lines, for eval or a script")
    form.add_argument("--json", action="store_true", help="values and reasons as JSON")
    form.add_argument("--dockerfile", action="store_true", help="ENV lines, without what belongs to one machine")
    form.add_argument(
        "--sbatch", action="store_true", help="export lines for a batch script, which runs on other machines"
    )
