"""The command that opens ports, made from facts that other machines sent."""

from collections.abc import Iterable, Mapping, Sequence

from allready.facts.firewall import open_command
from allready.model import FirewallFacts
from allready.rules.env._split import members
from allready.rules.net._interfaces import parse_network

MOST_PEERS = 8
MOST_COMMANDS = 3
_TOOLS = ("nft", "iptables", "ufw", "firewalld")
_FALLBACK = "iptables"  # understood nearly everywhere, also where nftables does the work


def opening(
    nodes: Iterable[int],
    firewall: Mapping[int, FirewallFacts] | None,
    ports: tuple[int, int],
    peers: Sequence[str],
) -> str:
    """What to type as root on `nodes` to let `peers` connect to these ports; nodes with one tool share one command.

    Where the filter could not be read the command is iptables'.
    """
    good = [p for p in peers if parse_network(p) is not None][:MOST_PEERS]
    span = (max(1, min(ports)), min(65535, max(ports)))
    by_tool: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for node in nodes:
        facts = firewall.get(node) if firewall else None
        tool = facts.tool if facts and facts.tool in _TOOLS else None
        key = (tool or "", facts.drops[:1] if facts and tool == "nft" else ())
        by_tool.setdefault(key, []).append(node)
    known = {key: found for key, found in by_tool.items() if key[0]} or by_tool
    commands = [
        (open_command(tool or _FALLBACK, [span], good, drops=drops), found)
        for (tool, drops), found in list(known.items())[:MOST_COMMANDS]
    ]
    if len(commands) == 1:
        return commands[0][0]
    return "; ".join(f"{command} [{members(found)}]" for command, found in commands)
