"""Whether what a report says is right: the class, exactly the culprits, and no rank innocent."""

from collections.abc import Mapping
from typing import Any

from allready.lab.inject.commands import LabLayout
from fault_suite.scenario import Answer, Expected
from fault_suite.watch import Said, culprits_of


def _nodes_of(layout: LabLayout, ranks: tuple[int, ...]) -> set[int]:
    return {layout.node_of(rank) for rank in ranks}


def _ranks_of(layout: LabLayout, nodes: set[int]) -> set[int]:
    return {rank for node in nodes for rank in layout.ranks_of(node)}


def names_exactly(culprits: Mapping[str, tuple[Any, ...]], answer: Answer, layout: LabLayout) -> bool:
    """Whether culprits are those of an answer: all of them, and no other process at any level."""
    ranks, nodes = set(culprits.get("ranks", ())), set(culprits.get("nodes", ()))
    links = set(culprits.get("links", ()))
    wanted_nodes = set(answer.nodes or ())
    allowed_links = set(answer.links or ()) | set(answer.links_among or ())
    if answer.ranks is not None and ranks != set(answer.ranks):
        return False
    by_its_ranks = not nodes and bool(wanted_nodes) and ranks == _ranks_of(layout, wanted_nodes)
    if answer.nodes is not None and nodes != wanted_nodes and not by_its_ranks:
        return False
    if answer.links is not None and links != set(answer.links):
        return False
    may_be_nodes = wanted_nodes | _nodes_of(layout, answer.ranks or ())
    may_be_nodes |= {end for link in allowed_links for end in link}
    if answer.links_among is not None and (not links or not links <= allowed_links):
        return False
    if not nodes <= may_be_nodes:
        return False
    if answer.ranks is None and not ranks <= _ranks_of(layout, wanted_nodes):
        return False
    if not allowed_links and not all(set(link) & may_be_nodes for link in links):
        return False
    return set(answer.variables) <= set(culprits.get("variables", ()))


def class_right(claim: Mapping[str, Any] | None, expected: Expected) -> bool:
    """Whether a verdict's or finding's class is one of those expected."""
    return claim is not None and any(claim["fault_class"] in answer.classes for answer in expected.answers)


def culprit_right(claim: Mapping[str, Any] | None, expected: Expected, layout: LabLayout) -> bool:
    """Whether a verdict's or finding's culprits are exactly those of an answer, whatever its class."""
    named = culprits_of(claim)
    return claim is not None and any(names_exactly(named, answer, layout) for answer in expected.answers)


def is_right(said: Said, expected: Expected, layout: LabLayout) -> bool:
    """Whether this state of a report gives a right answer."""
    claims: list[Mapping[str, Any]] = [said.verdict] if said.verdict else []
    if expected.in_findings:
        claims += [f for f in said.findings if f["severity"] != "info"]
    elif said.status not in expected.statuses:
        return False
    for claim in claims:
        named = culprits_of(claim)
        for answer in expected.answers:
            if claim["fault_class"] in answer.classes and names_exactly(named, answer, layout):
                return True
    return False


def innocents(said: Said, expected: Expected, layout: LabLayout) -> tuple[str, ...]:
    """Nodes and ranks that a confident verdict calls at fault, and no answer does."""
    if said.status != "fault" or not said.is_confident:
        return ()
    nodes = set(expected.excused)
    ranks: set[int] = set()
    for answer in expected.answers:
        nodes |= set(answer.nodes or ())
        nodes |= {end for link in (*(answer.links or ()), *(answer.links_among or ())) for end in link}
        nodes |= _nodes_of(layout, answer.ranks or ())
        ranks |= set(answer.ranks or ())
        if answer.ranks is None:
            ranks |= _ranks_of(layout, set(answer.nodes or ()))
    ranks |= _ranks_of(layout, set(expected.excused))
    named = said.culprits()
    found = [f"node {node}" for node in named.get("nodes", ()) if node not in nodes]
    found += [f"rank {rank}" for rank in named.get("ranks", ()) if rank not in ranks]
    found += [f"link {a} -> {b}" for a, b in named.get("links", ()) if not {a, b} & nodes]
    return tuple(found)


def is_false_alarm(said: Said) -> bool:
    """Whether a report of a job in which nothing is wrong calls something a fault, or surely blames a rank."""
    if said.status == "fault" and said.fault_class != "SLOW-NOCULPRIT":
        return True
    return said.status == "fault" and bool(said.culprits())
