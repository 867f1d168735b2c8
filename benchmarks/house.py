"""Size and complexity of this checkout, beside another one: `python benchmarks/house.py --against ../allready-before`.

Prints a table in Markdown.  Lines are those of tracked files; complexity is McCabe's as ruff counts it, of every
function under src.  `--tests` also counts the collected tests, which takes half a minute in each checkout.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
COMPLEX = re.compile(r"\((\d+) > 0\)")


def tracked(checkout: Path, *patterns: str) -> list[Path]:
    """The tracked files of a checkout that match."""
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=checkout, capture_output=True, check=True)  # noqa: S607
    return [
        checkout / name.decode() for name in listed.stdout.split(b"\0") if name and (checkout / name.decode()).is_file()
    ]


def lines(checkout: Path, *patterns: str) -> int:
    """Lines of the tracked files that match."""
    return sum(path.read_bytes().count(b"\n") for path in tracked(checkout, *patterns))


def complexities(checkout: Path) -> list[int]:
    """McCabe's complexity of every function under src."""
    argv = [sys.executable, "-m", "ruff", "check", "src", "--select", "C901", "--isolated", "--output-format", "json",
            "--config", "lint.mccabe.max-complexity=0", "--ignore-noqa", "--no-cache", "--exit-zero"]  # fmt: skip
    shown = subprocess.run(argv, cwd=checkout, capture_output=True, check=True)
    return sorted(int(found[1]) for row in json.loads(shown.stdout) if (found := COMPLEX.search(row["message"])))


def longest(checkout: Path) -> int:
    """Lines of the longest function under src."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in tracked(checkout, "src/*.py"))
    functions = (n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return max((n.end_lineno or n.lineno) - n.lineno + 1 for n in functions)


def occurrences(checkout: Path, text: str, *patterns: str) -> int:
    """How often a text stands in the tracked files that match."""
    return sum(path.read_text(encoding="utf-8").count(text) for path in tracked(checkout, *patterns))


def collected(checkout: Path) -> int:
    """Tests that pytest collects, of all kinds."""
    python = checkout / ".venv" / "bin" / "python"
    argv = [str(python), "-m", "pytest", "--collect-only", "-q", "-n", "0", "-m", ""]
    shown = subprocess.run(argv, cwd=checkout, capture_output=True, text=True, check=True).stdout
    return sum("::" in line for line in shown.splitlines())


def rows(checkout: Path) -> dict[str, Callable[[], object]]:
    """What is counted, by its name in the table."""
    return {
        "Python lines under src": lambda: lines(checkout, "src/*.py"),
        "modules under src": lambda: len(tracked(checkout, "src/*.py")),
        "TOML lines under src": lambda: lines(checkout, "src/*.toml"),
        "Python lines of tests": lambda: lines(checkout, "tests/*.py"),
        "Markdown lines of documents": lambda: lines(checkout, "*.md"),
        "functions above complexity 12": lambda: sum(number > 12 for number in complexities(checkout)),
        "highest complexity; median": lambda: f"{max(complexities(checkout))}; {median(complexities(checkout)):g}",
        "longest function, lines": lambda: longest(checkout),
        "`# fmt: skip` under src": lambda: occurrences(checkout, "# fmt: skip", "src/*.py"),
        "`Report(` under src": lambda: occurrences(checkout, " Report(", "src/*.py"),
    }


def main() -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout, shown first")
    parser.add_argument("--tests", action="store_true", help="count the tests as well")
    args = parser.parse_args()
    checkouts = {"before": args.against, "now": ROOT} if args.against else {"now": ROOT}
    counts = {name: rows(place) for name, place in checkouts.items()}
    sys.stdout.write(f"| | {' | '.join(checkouts)} |\n|---|{'---|' * len(checkouts)}\n")
    for row in counts["now"]:
        sys.stdout.write(f"| {row} | {' | '.join(str(count[row]()) for count in counts.values())} |\n")
    if args.tests:
        sys.stdout.write(f"| tests | {' | '.join(str(collected(place)) for place in checkouts.values())} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
