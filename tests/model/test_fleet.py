import pytest
from msgspec.structs import fields, replace

from allready.model import (
    NODE_FACTS,
    ClockFacts,
    FactMissing,
    MasterContactFacts,
    NetFacts,
    NodeFacts,
    NotApplicable,
    PerNode,
    RollCall,
    World,
    WorldNode,
)
from tests.fleets import claim, fleet, healthy_collectives

WORLD = World(
    num_nodes=3, world_size=6, nodes=(WorldNode(node_rank=0, name="a", ranks=(0, 1)), WorldNode(node_rank=2, name=""))
)


def test_every_fact_of_a_node_can_be_asked_for() -> None:
    assert {f.name for f in fields(NodeFacts)} == set(NODE_FACTS)
    assert [name for name, _ in NodeFacts().items()] == list(NODE_FACTS)


def test_nothing_is_known_of_a_node_at_first_and_each_absence_says_why() -> None:
    for name, value in NodeFacts().items():
        assert isinstance(value, FactMissing), name
        assert value.why


def test_splits_the_nodes_into_those_with_the_fact_and_the_others() -> None:
    have, missing = fleet(3, net={1: FactMissing("no /proc")}).per_node(NetFacts)
    assert set(have) == {0, 2}
    assert missing == {1: FactMissing("no /proc")}


def test_node_0_has_no_contact_with_itself() -> None:
    _, missing = fleet(2).per_node(MasterContactFacts)
    assert isinstance(missing[0], NotApplicable)
    assert isinstance(fleet(2).per_node(ClockFacts)[1][0], NotApplicable)


def test_per_node_is_a_sorted_mapping() -> None:
    mapping = PerNode({2: "c", 0: "a"})
    assert list(mapping) == [0, 2]
    assert (mapping[2], mapping.get(1), len(mapping), 0 in mapping) == ("c", None, 2, True)
    with pytest.raises(KeyError):
        mapping[1]


def test_a_node_is_called_by_number_and_name() -> None:
    assert WORLD.label(0) == "0 (a)"
    assert (WORLD.label(1), WORLD.label(2)) == ("1", "2")
    assert WORLD.labels([0, 1]) == "0 (a), 1"
    assert WORLD.labels(list(range(20)), most=2) == "0 (a), 1, … +18"
    assert WORLD.labels(()) == ""


def test_a_rank_has_a_node_where_that_is_known() -> None:
    assert (WORLD.node_of(1), WORLD.node_of(4)) == (0, None)


def test_a_refused_claim_is_not_present() -> None:
    roll = RollCall(num_nodes=3, claims=(claim(0, 3), claim(1, 3, refused="version"), claim(2, 3), claim(2, 3)))
    assert (roll.present, roll.missing) == ((0, 2), (1,))


def test_the_bad_stage_is_the_first_that_is_not_ok_or_skipped() -> None:
    run = healthy_collectives(4).runs[0]
    assert run.bad is None
    stages = [replace(s, outcome=o) for s, o in zip(run.stages, ["ok", "skipped", "hung", "failed"], strict=False)]
    bad = replace(run, stages=tuple(stages)).bad
    assert bad is not None
    assert (bad.name, bad.outcome) == (run.stages[2].name, "hung")
