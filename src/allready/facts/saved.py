"""Evidence back from a saved report, so that it can be judged again: offline, by newer rules, in a test."""

from allready.facts.exchange import from_json
from allready.model import Fleet, Reason, Report, UncheckedKind


def fleet_from_report(report: Report) -> Fleet:
    """The evidence that a report was judged by.

    Nodes whose facts the report left out (it keeps 64) are absent; parts that it lacks are not checked.

    Raises:
        ExchangeError: the facts in it are not what they should be.
    """
    alone = report.world.num_nodes == 1
    parts = ("roll", "reach", "collectives")
    not_run = {i.code: Reason(kind=i.kind, values=i.values or {"why": i.why}) for i in report.not_checked}
    return Fleet(
        world=report.world,
        nodes={int(node): from_json(facts) for node, facts in sorted(report.facts.items())},
        roll=report.roll,
        reach=report.reach,
        collectives=report.collectives,
        why_not={part: not_run.get(part, Reason(kind=UncheckedKind.NOT_SAVED)) for part in parts},
        inapplicable=frozenset({"roll", "reach"} if alone else ()),
    )
