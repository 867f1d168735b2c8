"""`NodeFacts` as plain JSON values and back: what travels to node 0, and what a report keeps and can be judged by."""

from typing import Any

from allready.errors import ExchangeError
from allready.model import Fleet, NodeFacts, Reason, Report, UncheckedKind, fact_from_json

MAX_ITEMS = 20_000
MAX_TEXT_CHARS = 16_384
MAX_DEPTH = 8


def to_json(facts: NodeFacts) -> dict[str, Any]:
    """Every fact by name; a missing one as {"missing": why} or {"not_applicable": why}."""
    import msgspec

    return {name: msgspec.to_builtins(value, str_keys=True) for name, value in facts.items()}


def from_json(data: Any) -> NodeFacts:
    """The facts that `to_json` wrote, also by another version: unknown names are passed over, absent ones missing.

    Raises:
        ExchangeError: it is something else, or far larger than facts can be.
    """
    import msgspec

    if not isinstance(data, dict):
        raise ExchangeError("facts must be an object")
    _check_size(data)
    found: dict[str, Any] = {}
    for name in NodeFacts.__struct_fields__:
        if name not in data:
            continue
        try:
            found[name] = fact_from_json(name, data[name])
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
            raise ExchangeError(f"the fact {name} is not what it should be: {error}") from error
    return NodeFacts(**found)


def fleet_from_report(report: Report) -> Fleet:
    """The evidence that a report was judged by.

    Nodes whose facts the report left out (it keeps 64) are absent; parts that it lacks are not checked.
    """
    alone = report.world.num_nodes == 1
    parts = ("roll", "reach", "collectives")
    not_run = {
        i.code: Reason(kind=i.kind, values=i.values or {"why": i.why}, phrases=i.phrases) for i in report.not_checked
    }
    return Fleet(
        world=report.world,
        nodes={int(node): from_json(facts) for node, facts in sorted(report.facts.items())},
        roll=report.roll,
        reach=report.reach,
        collectives=report.collectives,
        why_not={part: not_run.get(part, Reason(kind=UncheckedKind.NOT_SAVED)) for part in parts},
        inapplicable=frozenset({"roll", "reach"} if alone else ()),
    )


def _check_size(data: Any) -> None:
    waiting = [(data, 0)]
    count = 0
    while waiting:
        value, depth = waiting.pop()
        count += 1
        if count > MAX_ITEMS or depth > MAX_DEPTH or (isinstance(value, str) and len(value) > MAX_TEXT_CHARS):
            raise ExchangeError("facts of an impossible size")
        if isinstance(value, dict):
            waiting.extend((part, depth + 1) for pair in value.items() for part in pair)
        elif isinstance(value, list | tuple):
            waiting.extend((part, depth + 1) for part in value)
