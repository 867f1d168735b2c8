"""Evidence back from a saved report, so that it can be judged again: offline, by newer rules, in a test."""

from allready.facts.exchange import from_json
from allready.model import Fleet, Report


def fleet_from_report(report: Report) -> Fleet:
    """The evidence that a report was judged by.

    Nodes whose facts the report left out (it keeps 64) are absent; parts that it lacks are not checked.

    Raises:
        ExchangeError: the facts in it are not what they should be.
    """
    alone = report.world.num_nodes == 1
    not_run = {item.code: item.why for item in report.not_checked if item.code in {"roll", "reach", "collectives"}}
    return Fleet(
        world=report.world,
        nodes={int(node): from_json(facts) for node, facts in sorted(report.facts.items())},
        roll=report.roll,
        reach=report.reach,
        collectives=report.collectives,
        why_not={part: not_run.get(part, "not in the saved report") for part in ("roll", "reach", "collectives")},
        inapplicable=frozenset({"roll", "reach"} if alone else ()),
    )
