"""For developers, in a checkout: `python tools/dev.py new-rule AREA NAME`, `... new-signature FAMILY NAME LINE` and
`... untranslated`.

A new rule and its test begin as a copy of a small one that compares one fact between all nodes, the commonest form; a
new signature as an entry that knows its line and accuses no rank.  Change the fact and the words from there; the tests
show at once what no longer fits.
"""

import argparse
import re
import sys
import time
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from allready import __version__
from allready.docs import untranslated
from allready.errors import AllreadyError, UsageError
from allready.evidence.clock import Clock
from allready.evidence.log.line import decode
from allready.evidence.prefix import parse
from allready.judging.loading import AREAS, load
from allready.signatures import of_line
from allready.signatures.table import FAMILIES

CHECKOUT = Path(__file__).resolve().parents[1]

EXAMPLE = "kernel_differs"
EXAMPLE_CODE = "ENV005"
EXAMPLE_FILES = (f"src/allready/rules/env/{EXAMPLE}.py", f"tests/rules/env/test_{EXAMPLE}.py")
"""The rule that a new one begins as a copy of, and its test."""

MIN_ANCHOR = 6


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
    code = _next_code(area)
    for example, target in zip(EXAMPLE_FILES, (rule, test), strict=True):
        text = (root / example).read_text(encoding="utf-8").replace(EXAMPLE_CODE, code).replace(EXAMPLE, name)
        target.write_text(text.replace("    layer=", f'    since="{_version()}",\n    layer=', 1), encoding="utf-8")
    return code, [rule, test]


ENTRY = """
[[finding]]
code = "{code}"
name = "{name}"
since = "{version}"
role = "cascade"
severity = "info"
fault_class = "DEAD"
layer = "echo"
culprit = "none"
title = "What happened, in a few words"
message = "{{who}}: the same as a sentence, with the values that the pattern catches"
remedies = [{{ explanation = "what to do, as an imperative; compare with", command = "uname -r" }}]
page = \"\"\"
## What it checks
The line, and who writes it.
## Why it matters
What it shows of the job.
## Check by hand
The command that shows the same.
## When it is harmless
When runs that end well write it too.
\"\"\"
decoys = ["a similar line that means something else"]
[[finding.line]]
anchor = {anchor}
pattern = {pattern}
example = {example}
versions = "?"
"""
"""Of a new signature.  Patterns stand between single quotes, where a backslash is one."""


def new_signature(root: Path, family: str, name: str, line: str) -> tuple[str, Path]:
    """Append an entry for `line` to the table of a family; gives the new code and the file.

    Raises:
        UsageError: no such family, not a name, there is such a signature already, the line has one, or it cannot stand
            in a table; nothing is written.
    """
    path = root / "src" / "allready" / "signatures" / f"{family}.toml"
    if family not in FAMILIES or not path.is_file():
        raise UsageError("no family {family!r}; there are: {all}", family=family, all=", ".join(FAMILIES))
    text = path.read_text(encoding="utf-8")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise UsageError("{name!r}: write the name in lower case with underscores, like connection_lost", name=name)
    if f'\nname = "{name}"\n' in text:
        raise UsageError("{path} has a signature {name} already", path=path.relative_to(root), name=name)
    shown = decode(line.strip().encode("utf-8", "surrogateescape"))  # as a log's lines are read: without colours
    wrong = next((c for c in shown if c == "\ufffd" or (unicodedata.category(c) == "Cc" and c != "\t")), None)
    if wrong is not None:
        raise UsageError("{line!r}: give one line of text; {wrong!r} cannot stand in it", line=line, wrong=wrong)
    rest = parse(shown.strip(), Clock(time.time())).rest
    known = next((signature for signature, _ in of_line(rest)), None)
    if known is not None:
        raise UsageError("{id} ({code}) knows this line", id=known.id, code=known.code)
    literals = [part.strip(" ") for part in re.split(r"[0-9]+", rest)]
    anchor = max(literals, key=len)
    if len(anchor) < MIN_ANCHOR or "'''" in rest:
        raise UsageError("{line!r}: no words that tell it from others", line=line)
    code = _next_code(f"log_{family}")
    pattern = re.sub(r"[0-9]+", r"\\d{1,20}", re.escape(rest).replace(r"\ ", " "))
    quoted = {key: f"'''{value}'''" for key, value in (("anchor", anchor), ("pattern", pattern), ("example", rest))}
    entry = ENTRY.format(code=code, name=name, version=_version(), **quoted)
    _check_entry(path, text + entry, name, rest)
    path.write_text(text + entry, encoding="utf-8")
    return code, path


def _check_entry(path: Path, text: str, name: str, line: str) -> None:
    """Whether the table of this text can be read, and its newest entry knows the line."""
    try:
        newest = tomllib.loads(text)["finding"][-1]
    except tomllib.TOMLDecodeError as error:
        raise UsageError("{path} could not be read: {error}", path=path, error=error) from None
    [shape] = newest["line"]
    if newest["name"] != name or shape["anchor"] not in line or not re.search(shape["pattern"], line):
        raise UsageError("{line!r}: cannot stand in a table", line=line)


def _next_code(area: str) -> str:
    """After the last of those letters that most codes of the area have."""
    codes = [code for code, known in load().items() if known.area == area]
    [(letters, _)] = Counter(code[:3] for code in codes).most_common(1)
    return f"{letters}{max(int(code[3:]) for code in codes if code.startswith(letters)) + 1:03d}"


def _version() -> str:
    return ".".join(__version__.split(".")[:2])


def main(argv: Sequence[str] | None = None, root: Path = CHECKOUT) -> int:
    """Run one command; 0, or 2 when it cannot be done."""
    parser = argparse.ArgumentParser(prog="tools/dev.py", description="for developers, in a checkout")
    commands = parser.add_subparsers(dest="command", required=True)
    text = "write a rule that works, and its test, to be changed from there"
    command = commands.add_parser("new-rule", help=text, description=text)
    command.add_argument("area", help=", ".join(AREAS))
    command.add_argument("name", help="like mtu_differs")
    text = "append an entry that knows a log line to a table of signatures, to be changed from there"
    command = commands.add_parser("new-signature", help=text, description=text)
    command.add_argument("family", help=", ".join(FAMILIES))
    command.add_argument("name", help="like connection_lost")
    command.add_argument("line", help="as it stands in a log")
    text = "list texts that have no Chinese yet and are shown in English; exit code 1 when there are any"
    commands.add_parser("untranslated", help=text, description=text)
    arguments = parser.parse_args(argv)
    if arguments.command == "untranslated":
        missing = list(untranslated())
        for line in missing:
            print(line)
        return 1 if missing else 0
    try:
        if arguments.command == "new-rule":
            code, files = new_rule(root, arguments.area, arguments.name)
            tests = str(files[1].relative_to(root))
        else:
            code, file = new_signature(root, arguments.family, arguments.name, arguments.line)
            files, tests = [file], "tests/signatures"
            print(
                "leave in `anchor` and `pattern` what the library writes itself; names, paths and addresses are groups"
            )
    except AllreadyError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for path in files:
        print(f"{code}: {path.relative_to(root)}")
    print(f"then: .venv/bin/allready explain {code}; .venv/bin/pytest -q {tests}; make docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
