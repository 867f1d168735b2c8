"""The rules that `doctor` loads are all that can be asked of facts alone."""

from allready.judging.analysis import Analysis
from allready.judging.loading import AREAS_OF_FACTS, load, load_for, load_for_facts
from allready.judging.registry import JOB_PARTS, Applies
from allready.model import Fleet, Settings, World
from tests.fleets import healthy_node

OF_A_MACHINE = {"world", "settings"}


def test_no_rule_of_another_area_can_be_asked_of_facts_alone() -> None:
    for rule in load().values():
        if rule.area in AREAS_OF_FACTS or rule.applies is None or Applies.CHECK not in rule.applies:
            continue
        if any(need.fact_type is Analysis for need in rule.needs):
            assert rule.area in {"collective", "bench"}, f"{rule.code}: of the roll call or of collectives"
            continue
        parts = {JOB_PARTS.get(need.fact_type, "") for need in rule.needs if not need.per_node and not need.optional}
        assert parts - OF_A_MACHINE - {""}, rule.code


def test_facts_alone_need_no_other_rules_and_anything_else_does() -> None:
    alone = frozenset({"roll", "reach", "collectives"})
    fleet = Fleet(world=World(num_nodes=1, world_size=1), nodes={0: healthy_node(0, 1)}, inapplicable=alone)
    assert load_for(fleet) == load_for_facts()
    both = Fleet(world=fleet.world, nodes=fleet.nodes, settings=Settings(settings=()), inapplicable=alone)
    assert load_for(both) == load_for_facts()
    check = Fleet(world=fleet.world, nodes=fleet.nodes)
    assert load_for(check) == load()
