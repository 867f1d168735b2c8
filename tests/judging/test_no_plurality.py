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
from tests.live.monitor.made import Play, codes
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


@cases(("split", "num", "odd"), [*WHOLE, *OF_MORE])
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


LOOP = (1024, 2048, 4096)
"""Sizes of the calls of one iteration."""
IN_A_LOOP = [((2, 1, 1), 4), ((3, 2, 2), 7), ((1, 2, 1), 4), ((2, 1), 4), ((1, 1), 8)]
"""Where the loop that all had made goes on with the call of the first members, and the others make its other calls."""
TIES = [((1, 1), 2, [1]), ((2, 2), 4, [2, 3]), ((1, 3), 4, [0]), ((1, 2), 3, [0])]
"""The loop decides between two halves; a majority that has left the loop is right."""


@cases(("split", "num", "odd"), [*((*votes, []) for votes in IN_A_LOOP), *TIES])
def test_dumps_of_a_loop(split: Sequence[int], num: int, odd: list[int], tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank, value in enumerate(votes(split)):
        calls = [entry(seq, size=LOOP[(seq - 1) % 3]) for seq in range(1, 31)]
        calls += [entry(31, size=LOOP[value]), entry(32, state="scheduled", size=LOOP[(value + 1) % 3])]
        (folder / f"fr_{rank}").write_bytes(torch_pickle(dump(calls, members=tuple(range(num)))))
    found = verdict(folder)
    assert (found["code"], found["fault_class"]) == ("DSY001", "DESYNC-FLOW")
    assert found["culprits"]["ranks"] == odd


def recorded_log(folder: Path, num_ranks: int) -> str:
    """Rank 0's log of a recorded run, of a job of so many ranks."""
    with tarfile.open(RUNS / "size_mismatch.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    text = (folder / "size_mismatch" / "nccl.node0.vm.1900.log").read_text(encoding="utf-8")
    return re.sub(r"(n[rR]anks[ =])4\b", rf"\g<1>{num_ranks}", text)


@cases(("split", "num", "odd"), [*((*votes, []) for votes in IN_A_LOOP), *TIES])
def test_coll_logs_of_a_loop(split: Sequence[int], num: int, odd: list[int], tmp_path: Path) -> None:
    """The recorded program calls three operations in turn; from one on, members call the others of them."""
    lines = recorded_log(tmp_path / "recorded", num).splitlines()
    at = next(n for n, line in enumerate(lines) if "opCount 3f " in line)
    calls = [re.sub(r"opCount \w+ ", "opCount 3f ", lines[at + other]) for other in (0, 1, -1)]
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank, value in enumerate(votes(split)):
        own = "\n".join([*lines[:at], calls[value], *lines[at + 1 :]]) + "\n"
        own = own.replace(" rank 0 ", f" rank {rank} ").replace("vm:1900:", f"vm:{1900 + rank}:")
        (folder / f"nccl.vm.{1900 + rank}.log").write_text(own, encoding="utf-8")
    found = verdict(folder)
    assert (found["code"], found["fault_class"]) == ("DSY001", "DESYNC-FLOW")
    assert found["culprits"]["ranks"] == odd


@pytest.mark.parametrize(("split", "num", "odd"), [*WHOLE, *OF_MORE])
@pytest.mark.thorough
def test_coll_logs(split: Sequence[int], num: int, odd: list[int], tmp_path: Path) -> None:
    """The recorded log as every member would have written it; from one call on, sizes differ."""
    text = recorded_log(tmp_path / "recorded", num)
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
@pytest.mark.thorough
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


@cases(("split", "odd"), [*((split, ()) for split, num in IN_A_LOOP if sum(split) == num), ((2, 2), (2, 3))])
@pytest.mark.thorough
def test_live_cells_of_a_loop(split: Sequence[int], odd: tuple[int, ...]) -> None:
    """The same, from the rings of a running job."""
    play = Play(world_size=sum(split))
    apart = 121
    for rank, value in enumerate(votes(split)):
        play.odd[rank] = {
            seq: {"size": LOOP[(seq + (value if seq >= apart else 0)) % 3]} for seq in range(1, apart + 200)
        }
    play.play(8)
    assert not any(map(codes, play.reports))
    report = play.play(8)
    assert report is not None
    assert report.verdict is not None, report.findings
    assert report.verdict.fault_class == "DESYNC-FLOW"
    assert report.verdict.culprits.ranks == odd


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


JUDGES = ("rules/", "judging/", "live/", "evidence/", "preflight/", "agent/", "report/", "model/", "runtime/")
VOTE = "judging/majority.py"
NO_VOTES = {
    "shown, in an order of sizes": (
        "judging/baseline.py", "judging/calls.py", "judging/waits.py", "evidence/digest.py", "report/matrix.py",
        "report/timeline.py", "report/words.py", "rules/fallback/_victims.py", "rules/hang/_circle.py",
        "rules/live/nothing_moves.py", "rules/net/routes.py",
    ),
    "lines, texts or counts of one writer, not members of a job": (
        "evidence/inputs/backwards.py", "evidence/inputs/envelopes.py", "evidence/lines/forms.py",
        "evidence/lines/lane.py", "evidence/lines/literals.py", "evidence/log/apart.py",
        "evidence/log/eta.py", "evidence/log/parsing.py", "evidence/log/progress.py", "evidence/sniff.py",
        "evidence/stacks/read.py",
    ),
    "a bound of memory": (
        "evidence/lines/streams.py", "live/monitor/pace_lines.py", "runtime/metrics/counts.py", "runtime/path.py",
    ),
    "the group with most members, or most calls, of which the report tells; it accuses no member": (
        "judging/hang.py", "live/monitor/course.py", "live/monitor/pace.py",
    ),
    "the tensor that most ranks have not submitted, which is shown": ("judging/horovod.py",),
    "sizes of messages, or rates": ("judging/prediction.py", "judging/bisection.py"),
    "the narrowest setting wins": ("model/settings.py",),
    "a distance on a circle, or a range of ports": ("preflight/reach/schedule.py", "preflight/reach/endpoint.py"),
    "the surest of several names of one node": ("evidence/join/identity.py",),
}  # fmt: skip
"""Why it is no vote where a number is compared with half of another, or the largest or most frequent is asked for."""
UNITS = ("_s", "_ms", "_ns", "_bytes", "_share", "_ticks")
"""Quantities, of which half is no vote."""
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def hand_written(tree: ast.AST) -> Iterator[ast.AST]:
    """`2 * x > n`, `x < n / 2`, `counter.most_common()`, `max(groups, key=len)`."""
    yield from (node for node in nodes(tree, ast.Attribute) if node.attr == "most_common")
    for node in nodes(tree, ast.Compare):
        has_half = any(map(_is_half, (node.left, *node.comparators)))
        if has_half and any(isinstance(op, ORDER) for op in node.ops) and not any(map(_has_unit, ast.walk(node))):
            yield node
    for call in nodes(tree, ast.Call):
        keys = [word.value for word in call.keywords if word.arg == "key"]
        is_count = any(_name(part) in {"len", "sum"} for key in keys for part in ast.walk(key))
        picks_most = _name(call.func) == "max" and (is_count or any(map(_is_look_up, keys)))
        if picks_most or (is_count and _name(call.func) in {"sorted", "sort"}):
            yield call


def _is_half(side: ast.expr) -> bool:
    if not isinstance(side, ast.BinOp) or not isinstance(side.op, ast.Mult | ast.Div | ast.FloorDiv):
        return False
    operands = [side.left, side.right] if isinstance(side.op, ast.Mult) else [side.right]
    return any(isinstance(x, ast.Constant) and x.value == 2 for x in operands)


def _is_look_up(key: ast.expr) -> bool:
    """`key=counts.get`."""
    return _name(key) in {"get", "__getitem__"}


def _has_unit(node: ast.AST) -> bool:
    return _name(node).lower().endswith(UNITS)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@pytest.mark.thorough
def test_no_vote_is_written_by_hand() -> None:
    found = {
        str(place): [ast.unparse(node) for node in hand_written(tree)]
        for place, tree in trees().items()
        if str(place).startswith(JUDGES) and str(place) != VOTE
    }
    excused = {place for places in NO_VOTES.values() for place in places}
    assert {place: votes for place, votes in found.items() if votes and place not in excused} == {}
    assert {place for place in excused if not found.get(place)} == set(), "these need no excuse any more"


@cases(
    "code",
    [
        "if 2 * len(slow) >= len(best): pass",
        "odd = stuck if len(stuck) * 2 < len(ranks) else []",
        "if len(few) < len(all) / 2: pass",
        "usual = Counter(values).most_common(1)",
        "if 2 * number <= len(here): pass",
        "is_most = 2 * same > many",
        "enough = self.ahead * 2 > self.all",
        "usual = max(groups.items(), key=lambda group: len(group[1]))",
        "best = max(counts, key=counts.get)",
        "usual = max(shares, key=lambda x: sum(alike(x, y) for y in shares))",
        "first = sorted(complaints, key=lambda one: -len(writers(one)))[0]",
        "groups.sort(key=len)",
    ],
)
def test_a_vote_by_hand_is_found(code: str) -> None:
    assert list(hand_written(ast.parse(code)))


@cases("code", ["if waited_s > 2 * period_s: pass", "last = max(ranks, key=lambda r: r.ended_s)", "a = 2 * n + 1"])
def test_other_comparisons_are_none(code: str) -> None:
    assert not list(hand_written(ast.parse(code)))
