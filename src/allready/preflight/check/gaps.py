"""What a stage that ran has left out: it forbids "healthy" as much as a stage that did not run."""

from collections.abc import Mapping

from allready.model import (
    LaunchFacts,
    NodeFacts,
    NotApplicable,
    Reachability,
    Reason,
    ScriptFacts,
    UncheckedKind,
    ranges,
)
from allready.text.reasons import reason


def gaps(facts: Mapping[int, NodeFacts], reach: Reachability | None) -> dict[str, Reason]:
    """Stage -> what of it is missing, so that no node is called healthy that was not checked.

    Single facts that a machine does not give are the rules' own matter; here it is a node without any facts, a script
    that was to be compared and could not be read, and pairs of nodes that were planned and not tried.
    """
    found: dict[str, Reason] = {}
    mute = [n for n, node in facts.items() if not isinstance(node.launch, LaunchFacts)]
    scripts = {n: node.script for n, node in facts.items() if n not in mute}
    unread = [n for n, script in scripts.items() if not isinstance(script, ScriptFacts)]
    if mute:
        found["facts"] = reason(UncheckedKind.NODE_UNKNOWN, nodes=ranges(mute))
    elif any(not isinstance(script, NotApplicable) for script in scripts.values()) and unread:
        found["facts"] = reason(UncheckedKind.SCRIPT_UNREAD, nodes=ranges(unread))
    if reach is not None and reach.num_pairs_done < reach.num_pairs_planned:
        found["reach"] = reason(UncheckedKind.PAIRS_UNTRIED, done=reach.num_pairs_done, planned=reach.num_pairs_planned)
    return found
