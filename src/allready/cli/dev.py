"""For developers, in a checkout: `python -m allready.cli.dev new-rule AREA NAME` and `... untranslated`.

A new rule and its test work and pass: it compares one fact between all nodes, the commonest form.  Change the fact and
the words from there; the tests show at once what no longer fits.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from allready.docs import untranslated
from allready.errors import AllreadyError, UsageError
from allready.judging.registry import AREAS, load

CHECKOUT = Path(__file__).resolve().parents[3]

RULE = '''\
"""CODE."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.registry import Rule
from allready.model import Culprits, Evidence, FaultClass, Hit, HostFacts, PerNode, Severity


@Rule(
    code="CODE",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    since="VERSION",
    layer=Layer.READINESS,
    title="Nodes run different operating systems",
    message="the operating system differs between nodes: {split}",
    remedy="nothing, unless only these nodes make trouble; to compare: cat /etc/os-release",
)
def NAME(host: PerNode[HostFacts]) -> Iterator[Hit]:
    """
    ## What it checks
    The name of the operating system on every node.
    ## Why it matters
    Libraries of another system may have other defaults.
    ## Check by hand
    `cat /etc/os-release` on every node.
    ## When it is harmless
    When the job runs in the same container everywhere.
    """
    values = {node: facts.os_name for node, facts in host.items()}
    split = Split.by(values)
    if len(split) > 1:
        yield Hit(
            culprits=Culprits(nodes=split.outliers()),
            values={"split": split},
            evidence=tuple(Evidence(source="/etc/os-release", text=v, node_rank=n) for n, v in values.items()),
        )
'''

TEST = '''\
from msgspec.structs import replace

from allready.model import FactMissing, HostFacts
from allready.testing import check, fleet


def other(node: int) -> HostFacts:
    """The host of `node` as it is in a healthy fleet, but for the fact in question."""
    healthy = fleet(node + 1).nodes[node].host
    assert isinstance(healthy, HostFacts)
    return replace(healthy, os_name="Another OS 1")


def test_names_the_one_node_that_differs() -> None:
    [hit] = check("CODE", fleet(4, host={2: other(2)})).hits
    assert hit.culprits.nodes == (2,)


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check("CODE", fleet(2, host={1: other(1)})).hits
    assert hit.culprits.nodes == ()


def test_is_clear_when_all_are_alike() -> None:
    assert check("CODE", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("CODE", fleet(2, host={1: FactMissing("permission denied")}))
    assert outcome.unchecked == {1: "permission denied"}
'''


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
    rule.write_text(_filled(RULE, code, name), encoding="utf-8")
    test.write_text(_filled(TEST, code, name), encoding="utf-8")
    return code, [rule, test]


def _filled(template: str, code: str, name: str) -> str:
    from allready import __version__

    version = ".".join(__version__.split(".")[:2])
    return template.replace("CODE", code).replace("NAME", name).replace("VERSION", version)


def main(argv: Sequence[str] | None = None, root: Path = CHECKOUT) -> int:
    """Run one command; 0, or 2 when it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m allready.cli.dev", description="for developers, in a checkout")
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
