"""What a stage that ran has left out: it forbids "healthy" as much as a stage that did not run."""

from collections.abc import Mapping

from allready.model import LaunchFacts, NodeFacts, NotApplicable, Reachability, ScriptFacts, ranges


def gaps(facts: Mapping[int, NodeFacts], reach: Reachability | None) -> dict[str, str]:
    """Stage -> what of it is missing, so that nobody is called healthy who was not looked at.

    Single facts that a machine does not give are the rules' own matter; here it is a node without any facts, a script
    that was to be compared and could not be read, and pairs of nodes that were planned and not tried.
    """
    found: dict[str, str] = {}
    mute = [n for n, node in facts.items() if not isinstance(node.launch, LaunchFacts)]
    scripts = {n: node.script for n, node in facts.items() if n not in mute}
    unread = [n for n, script in scripts.items() if not isinstance(script, ScriptFacts)]
    if mute:
        found["facts"] = f"nothing is known of node {ranges(mute)}"
    elif any(not isinstance(script, NotApplicable) for script in scripts.values()) and unread:
        found["facts"] = f"the script could not be compared: it was not read on node {ranges(unread)}"
    if reach is not None and reach.num_pairs_done < reach.num_pairs_planned:
        found["reach"] = f"only {reach.num_pairs_done} of {reach.num_pairs_planned} pairs of nodes were tried"
    return found
