"""Votes without a strict majority accuse no rank and no node, whichever way the evidence comes in."""

import ast
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from allready.cli.main import main
from allready.model import FactMissing, NetFacts, ScriptFacts
from tests.cases import cases
from tests.evidence.flight.dialect import torch_pickle
from tests.evidence.flight.make import dump, entry
from tests.fleets import check, fleet, healthy_node
from tests.live.monitor.made import Play
from tests.rules.env.made import host, variables
from tests.text.sources import nodes, trees

SPLITS = [(2, 1, 1), (3, 2, 2)]
"""How many members have the first, second and third value: none has more than half."""
WHOLE = [((2, 1, 1), 4, []), ((3, 2, 2), 7, []), ((3, 1), 4, [3]), ((5, 2), 7, [5, 6])]
"""Votes of all members, how many members there are, and who differs from the majority."""
OF_MORE = [((2, 1), 4, []), ((4, 1), 8, []), ((3, 1), 5, [3]), ((5, 2), 9, [5, 6])]
"""The same where some members left nothing: they may have had any value."""
RUNS = Path(__file__).parents[1] / "fixtures" / "runs"


def votes(split: Sequence[int]) -> list[int]:
    """(2, 1, 1) -> [0, 0, 1, 2]: the value of each member."""
    return [value for value, num in enumerate(split) for _ in range(num)]


def verdict(folder: Path) -> dict[str, Any]:
    target = folder.parent / "report.json"
    assert main(["diagnose", "-q", "--json", str(target), str(folder)]) == 1
    found = json.loads(target.read_text(encoding="utf-8"))["verdict"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("split", "num", "odd"), [*WHOLE, *OF_MORE])
def test_dumps(split: Sequence[int], num: int, odd: list[int], tmp_path: Path) -> None:
    members = tuple(range(num))
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank, value in enumerate(votes(split)):
        calls = [entry(seq) for seq in range(1, 10)]
        calls += [entry(10, size=1024 * (value + 1)), entry(11, state="scheduled", size=1024 * (value + 1))]
        (folder / f"fr_{rank}").write_bytes(torch_pickle(dump(calls, members=members)))
    found = verdict(folder)
    assert (found["code"], found["fault_class"]) == ("DSY002", "DESYNC-ARGS")
    assert found["culprits"]["ranks"] == odd


@pytest.mark.parametrize(("split", "num", "odd"), [*WHOLE, *OF_MORE])
def test_coll_logs(split: Sequence[int], num: int, odd: list[int], tmp_path: Path) -> None:
    """Rank 0's log of a recorded run, as every member would have written it; from one call on, sizes differ."""
    with tarfile.open(RUNS / "size_mismatch.tar.xz") as tar:
        tar.extractall(tmp_path / "recorded", filter="data")
    text = (tmp_path / "recorded" / "size_mismatch" / "nccl.node0.vm.1900.log").read_text(encoding="utf-8")
    text = re.sub(r"(n[rR]anks[ =])4\b", rf"\g<1>{num}", text)
    equal, mark, rest = text.partition("opCount 3f ")
    assert mark
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank, value in enumerate(votes(split)):
        own = equal + mark + rest.replace("count 1048576 ", f"count {1048576 - value} ")
        own = own.replace(" rank 0 ", f" rank {rank} ").replace("vm:1900:", f"vm:{1900 + rank}:")
        (folder / f"nccl.vm.{1900 + rank}.log").write_text(own, encoding="utf-8")
    found = verdict(folder)
    assert (found["code"], found["fault_class"]) == ("DSY002", "DESYNC-ARGS")
    assert found["culprits"]["ranks"] == odd


@pytest.mark.parametrize("split", [*SPLITS, (5, 2)])
def test_live_cells(split: Sequence[int]) -> None:
    play = Play(world_size=sum(split))
    play.play(8)
    other = dict.fromkeys(range(play.seq + 1, play.seq + 60), 0)
    for rank, value in enumerate(votes(split)):
        if value:
            play.odd[rank] = {seq: {"size": 100 + value} for seq in other}
    report = play.play(8)
    assert report is not None
    assert report.verdict is not None, report.findings
    assert report.verdict.fault_class == "DESYNC-ARGS"
    assert report.verdict.culprits.ranks == ((5, 6) if split == (5, 2) else ())


def of_mtu(node: int, value: int) -> NetFacts:
    net = healthy_node(node, 8).net
    assert isinstance(net, NetFacts)
    own = (replace(i, mtu_bytes=9000 - value) if i.name == "eth0" else i for i in net.interfaces)
    return replace(net, interfaces=tuple(own))


FACTS: dict[str, tuple[str, Callable[[int, int], object]]] = {
    "ENV002": ("env", lambda _, value: variables(NCCL_ALGO=str(value))),
    "ENV005": ("host", lambda node, value: host(node, kernel=f"6.{value}.0")),
    "ENV003": ("script", lambda _, value: ScriptFacts(path="train.py", size_bytes=1, sha256=f"{value}" * 64)),
    "NET003": ("net", of_mtu),
}
"""Code of a rule that compares nodes -> the fact that it compares, and that fact of a node with a given value."""


@cases(("code", "split", "num", "odd"), [(c, *votes) for c in FACTS for votes in (*WHOLE, *OF_MORE, ((2, 1), 64, []))])
def test_facts(code: str, split: Sequence[int], num: int, odd: list[int]) -> None:
    part, of_value = FACTS[code]
    known: dict[int, object] = {node: of_value(node, value) for node, value in enumerate(votes(split))}
    unknown = {node: FactMissing("no answer") for node in range(num) if node not in known}
    hits = check(code, fleet(num, **{part: known | unknown})).hits
    assert {hit.culprits.nodes for hit in hits} == {tuple(odd)}


JUDGES = ("rules/", "judging/", "live/monitor/", "evidence/", "preflight/", "agent/", "report/", "model/")
VOTE = "judging/majority.py"
NO_VOTES = {
    "judging/baseline.py": "the four most frequent values are shown, nothing differs from them",
    "judging/bisection.py": "the size of a group, which is halved",
    "judging/iterations.py": "the usual iteration is shown",
    "rules/net/unroutable_choice.py": "the routes that are shown",
    "rules/live/gpu_behind.py": "two thirds must show one share: stricter than a majority",
    "evidence/log/parsing.py": "lines of a file, not members of a job",
    "evidence/stacks/read.py": "lines of a file, not members of a job",
    "evidence/sniff.py": "lines of a file, not members of a job",
    "evidence/lines/lane.py": "lines of a file, not members of a job",
    "evidence/lines/forms.py": "lines of a file, not members of a job",
    "evidence/log/apart.py": "counts that one writer printed, not members of a job",
    "preflight/reach/schedule.py": "a distance on a circle",
    "live/monitor/pace.py": "a bound of memory",
    "live/monitor/pace_lines.py": "a bound of memory",
    "live/monitor/readings.py": "a bound of memory",
    "evidence/lines/streams.py": "a bound of memory",
}
"""Where a number is compared with half of another, or the most frequent value is asked for, and why that is no vote."""


def hand_written(tree: ast.AST) -> Iterator[ast.AST]:
    """`2 * x > len(y)`, `x < len(y) / 2`, `counter.most_common()`."""
    yield from (node for node in nodes(tree, ast.Attribute) if node.attr == "most_common")
    for node in nodes(tree, ast.Compare):
        if any(map(_is_half, (node.left, *node.comparators))) and any(map(_counts, ast.walk(node))):
            yield node


def _is_half(side: ast.expr) -> bool:
    if not isinstance(side, ast.BinOp) or not isinstance(side.op, ast.Mult | ast.Div | ast.FloorDiv):
        return False
    operands = [side.left, side.right] if isinstance(side.op, ast.Mult) else [side.right]
    return any(isinstance(x, ast.Constant) and x.value == 2 for x in operands)


def _counts(node: ast.AST) -> bool:
    return (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len") or (
        isinstance(node, ast.Name) and "num" in node.id
    )


@pytest.mark.thorough
def test_no_vote_is_written_by_hand() -> None:
    found = {
        str(place): [ast.unparse(node) for node in hand_written(tree)]
        for place, tree in trees().items()
        if str(place).startswith(JUDGES) and str(place) != VOTE
    }
    assert {place: votes for place, votes in found.items() if votes and place not in NO_VOTES} == {}
    assert {place for place in NO_VOTES if not found.get(place)} == set(), "these need no excuse any more"


@pytest.mark.parametrize(
    "code",
    [
        "if 2 * len(slow) >= len(best): pass",
        "odd = stuck if len(stuck) * 2 < len(ranks) else []",
        "if len(few) < len(all) / 2: pass",
        "usual = Counter(values).most_common(1)",
        "if 2 * number <= len(here): pass",
    ],
)
def test_a_vote_by_hand_is_found(code: str) -> None:
    assert list(hand_written(ast.parse(code)))
