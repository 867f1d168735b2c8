"""For developers, in a checkout: `python tools/dev.py new-rule AREA NAME` and `... untranslated`.

A new rule and its test begin as a copy of a small one that compares one fact between all nodes, the commonest form.
Change the fact and the words from there; the tests show at once what no longer fits.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from allready import __version__
from allready.docs import untranslated
from allready.errors import AllreadyError, UsageError
from allready.judging.loading import AREAS, load

CHECKOUT = Path(__file__).resolve().parents[1]

EXAMPLE = "kernel_differs"
EXAMPLE_CODE = "ENV005"
EXAMPLE_FILES = (f"src/allready/rules/env/{EXAMPLE}.py", f"tests/rules/env/test_{EXAMPLE}.py")
"""The rule that a new one begins as a copy of, and its test."""


def new_rule(root: Path, area: str, name: str) -> tuple[str, list[Path]]:
    """Write both files below the checkout `root`; gives the new code and the files.

    Raises:
        UsageError: no such area, not a name, or there is such a rule already; nothing is written.
    """
    if area not in AREAS:
        raise UsageError("no area {area!r}; there are: {areas}", area=area, areas=", ".join(AREAS))
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise UsageError("{name!r}: write the name in lower case with underscores, like mtu_differs", name=name)
    rule = root / "src" / "allready" / "rules" / area / f"{name}.py"
    test = root / "tests" / "rules" / area / f"test_{name}.py"
    if not rule.parent.is_dir() or not test.parent.is_dir():
        raise UsageError("{root} is not a checkout of allready; run this from an editable install of one", root=root)
    taken = [path for path in (rule, test) if path.exists()]
    if taken:
        raise UsageError("{path} already exists", path=taken[0])
    codes = [code for code, known in load().items() if known.area == area]
    code = f"{codes[-1][:3]}{int(codes[-1][3:]) + 1:03d}"
    version = ".".join(__version__.split(".")[:2])
    for example, target in zip(EXAMPLE_FILES, (rule, test), strict=True):
        text = (root / example).read_text(encoding="utf-8").replace(EXAMPLE_CODE, code).replace(EXAMPLE, name)
        target.write_text(text.replace("    layer=", f'    since="{version}",\n    layer=', 1), encoding="utf-8")
    return code, [rule, test]


def main(argv: Sequence[str] | None = None, root: Path = CHECKOUT) -> int:
    """Run one command; 0, or 2 when it cannot be done."""
    parser = argparse.ArgumentParser(prog="tools/dev.py", description="for developers, in a checkout")
    commands = parser.add_subparsers(dest="command", required=True)
    text = "write a rule that works, and its test, to be changed from there"
    command = commands.add_parser("new-rule", help=text, description=text)
    command.add_argument("area", help=", ".join(AREAS))
    command.add_argument("name", help="like mtu_differs")
    text = "list texts that have no Chinese yet and are shown in English; exit code 1 when there are any"
    commands.add_parser("untranslated", help=text, description=text)
    arguments = parser.parse_args(argv)
    if arguments.command == "untranslated":
        missing = list(untranslated())
        for line in missing:
            print(line)
        return 1 if missing else 0
    try:
        code, files = new_rule(root, arguments.area, arguments.name)
    except AllreadyError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for path in files:
        print(f"{code}: {path.relative_to(root)}")
    print(f"then: allready explain {code}; .venv/bin/pytest -q {files[1].relative_to(root)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
