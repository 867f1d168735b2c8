"""What holds for all rules of net and env at once: no false alarm, and speed."""

import random

import pytest
from msgspec.structs import replace

from allready.judging.engine import judge, run
from allready.judging.loading import load
from allready.model import Fleet, Severity
from tests.cases import cases
from tests.clock import cpu_s
from tests.fleets import fleet, healthy_path, healthy_reach

RULES = [rule for rule in load().values() if rule.area in {"net", "env"}]


@cases("num_nodes", [1, 2, 3, 8])
def test_a_healthy_fleet_gives_no_finding_at_all(num_nodes: int) -> None:
    findings, unchecked = judge(fleet(num_nodes), RULES)
    assert not findings
    assert not unchecked


def test_one_node_alone_gives_no_finding() -> None:
    alone = fleet(1, reach=None, roll=None, collectives=None, why_not={"reach": "one node", "roll": "one node"})
    assert judge(alone, RULES)[0] == ()


def seconds_of(case: Fleet, *, enough_s: float = 0.0) -> float:
    """CPU time of all rules."""

    def all_rules() -> None:
        for rule in RULES:
            outcome = run(rule, case)
            assert outcome.crash is None, outcome.crash

    return cpu_s(all_rules, enough_s=enough_s)


def test_512_nodes_take_less_than_a_second() -> None:
    assert seconds_of(fleet(512, reach=None), enough_s=1.0) < 1.0


@pytest.mark.thorough
def test_a_sample_of_paths_takes_seconds_at_most_even_when_many_are_bad() -> None:
    chance = random.Random(7)
    pairs = [(a, b) for a in range(512) for b in chance.sample(range(512), 32) if a != b]
    paths = [healthy_path(a, b, outcome="filtered" if b % 3 == 0 else "ok") for a, b in pairs]
    reach = replace(healthy_reach(2), paths=tuple(paths), datagrams=())
    case = fleet(512, reach=reach)
    assert seconds_of(case, enough_s=4.0) < 4.0
    findings, _ = judge(case, RULES)
    assert all(len(f.message) < 800 and len(f.culprits.links) <= 256 and len(f.evidence) <= 64 for f in findings)


@pytest.mark.thorough
def test_costs_grow_with_the_number_of_nodes_and_not_with_its_square() -> None:
    small, large = fleet(64, reach=None), fleet(512, reach=None)
    assert seconds_of(large) < 24 * max(seconds_of(small), 0.01)


def test_what_blocks_comes_before_what_only_warns() -> None:
    findings, _ = judge(fleet(3, reach=healthy_reach(3, {(0, 1): {"outcome": "filtered", "rtt_s": None}})), RULES)
    assert [f.severity for f in findings] == [Severity.BLOCKER]
