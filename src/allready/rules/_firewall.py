"""What a node's packet filter does to others, and the commands that open it; facts come from other machines."""

import ipaddress
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from allready.judging.values import NodeCommand
from allready.model import DropRule, FirewallFacts

DEFAULT_NFT_CHAIN = "inet filter input"
DEFAULT_NFT_OUT_CHAIN = "inet filter output"

PortRange = int | tuple[int, int]
MAX_PEERS = 8
MAX_COMMANDS = 3
_TOOLS = ("nft", "iptables", "ufw", "firewalld")
_FALLBACK = "iptables"  # understood nearly everywhere, also where nftables does the work


def opening(
    nodes: Iterable[int],
    firewall: Mapping[int, FirewallFacts] | None,
    ports: tuple[int, int],
    peers: Sequence[str],
) -> list[NodeCommand]:
    """What lets `peers` connect to these ports of `nodes`; nodes with one tool share one command.

    Where the filter could not be read the command is iptables'.
    """
    good = [p for p in peers if _is_network(p)][:MAX_PEERS]
    span = (max(1, min(ports)), min(65535, max(ports)))
    by_tool: dict[tuple[str, str], list[int]] = {}
    for node in nodes:
        facts = firewall.get(node) if firewall else None
        tool = facts.tool if facts is not None and facts.tool in _TOOLS else ""
        chain = nft_chain(rule_for(facts, span)) if facts is not None and tool == "nft" else ""
        by_tool.setdefault((tool or "", chain), []).append(node)
    known = {key: found for key, found in by_tool.items() if key[0]} or by_tool
    return [
        (open_command(tool or _FALLBACK, [span], good, chain=chain), tuple(found))
        for (tool, chain), found in list(known.items())[:MAX_COMMANDS]
    ]


def opening_outward(
    nodes: Iterable[int], firewall: Mapping[int, FirewallFacts], ports: tuple[int, int]
) -> list[NodeCommand]:
    """What lets `nodes`, whose own filters stop their connections, reach these ports of others."""
    by_command: dict[str, list[int]] = {}
    for node in nodes:
        facts = firewall.get(node)
        if facts is not None and facts.tool == "nft":
            chain = nft_chain(rule_for(facts, ports, outward=True)) or DEFAULT_NFT_OUT_CHAIN
            command = _nft(4, (), [ports], chain)
        else:
            command = f"iptables -I OUTPUT -p tcp --dport {ports[0]}:{ports[1]} -j ACCEPT"
        by_command.setdefault(command, []).append(node)
    return [(command, tuple(found)) for command, found in list(by_command.items())[:MAX_COMMANDS]]


def rule_for(firewall: FirewallFacts, ports: tuple[int, int], *, outward: bool = False) -> DropRule | None:
    """The rule to show for dropped ports: one that names them, else a policy, else the first of that direction."""
    rules = [r for r in firewall.drops if r.is_outbound == outward] or list(firewall.drops)
    low, high = ports
    naming = (r for r in rules if any(first <= high and low <= last for first, last in r.ports))
    return next(naming, next((r for r in rules if r.is_policy), rules[0] if rules else None))


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def nft_chain(rule: DropRule | None) -> str:
    """The chain of a rule as a command may name it; empty where it is no such name."""
    return rule.chain if rule is not None and _CHAIN.fullmatch(rule.chain) else ""


def open_command(tool: str, ports: Sequence[PortRange], peers: Sequence[str], *, chain: str = "") -> str:
    """The shell line, for root, that lets `peers` connect to TCP `ports` through the firewall that is there.

    Args:
        tool: `FirewallFacts.tool`: nft, iptables, ufw or firewalld.
        ports: single ports or inclusive ranges; at least one.
        peers: addresses or networks; () for everybody.
        chain: of nft, `nft_chain` of the rule that drops.

    Raises:
        ValueError: a peer is no address, a port is no port, or the tool is another one.
    """
    spans = [(p, p) if isinstance(p, int) else p for p in ports]
    if not spans or any(not 0 < low <= high < 65536 for low, high in spans):
        raise ValueError(f"not TCP ports: {ports}")
    by_family: dict[int, list[str]] = {4: [], 6: []}
    for peer in dict.fromkeys(peers):
        network = ipaddress.ip_network(peer, strict=False)
        by_family[network.version].append(peer if network.num_addresses == 1 else str(network))
    groups = [(family, found) for family, found in by_family.items() if found] or [(4, [])]
    match tool:
        case "nft":
            lines = [_nft(family, found, spans, chain or DEFAULT_NFT_CHAIN) for family, found in groups]
        case "iptables":
            lines = [_iptables(family, found, spans) for family, found in groups]
        case "ufw":
            lines = [_ufw(peer, spans) for _, found in groups for peer in found or ["any"]]
        case "firewalld":
            lines = list(_firewalld(groups, spans))
        case _:
            raise ValueError(f"no such firewall: {tool} (nft, iptables, ufw, firewalld)")
    return " && ".join(lines)


def _nft(family: int, peers: Sequence[str], spans: Sequence[tuple[int, int]], chain: str) -> str:
    ports = _nft_set([str(low) if low == high else f"{low}-{high}" for low, high in spans])
    source = f"{'ip' if family == 4 else 'ip6'} saddr {_nft_set(peers)} " if peers else ""
    rule = f"{source}tcp dport {ports} accept"
    return f"nft insert rule {chain} {shlex.quote(rule) if '{' in rule else rule}"


def _nft_set(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{{ {', '.join(items)} }}"


_CHAIN = re.compile(r"(?:inet|ip|ip6|netdev) [A-Za-z0-9_./-]{1,64} [A-Za-z0-9_./-]{1,64}")


def _iptables(family: int, peers: Sequence[str], spans: Sequence[tuple[int, int]]) -> str:
    ports = ",".join(str(low) if low == high else f"{low}:{high}" for low, high in spans)
    which = f"--dport {ports}" if len(spans) == 1 else f"-m multiport --dports {ports}"
    source = f" -s {','.join(peers)}" if peers else ""
    return f"{'iptables' if family == 4 else 'ip6tables'} -I INPUT -p tcp{source} {which} -j ACCEPT"


def _ufw(peer: str, spans: Sequence[tuple[int, int]]) -> str:
    ports = ",".join(str(low) if low == high else f"{low}:{high}" for low, high in spans)
    return f"ufw insert 1 allow proto tcp from {peer} to any port {ports}"


def _firewalld(groups: Sequence[tuple[int, Sequence[str]]], spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    for family, peers in groups:
        for low, high in spans:
            ports = str(low) if low == high else f"{low}-{high}"
            for peer in peers:
                rule = f'rule family="ipv{family}" source address="{peer}" port port="{ports}" protocol="tcp" accept'
                yield f"firewall-cmd --add-rich-rule={shlex.quote(rule)}"
            if not peers:
                yield f"firewall-cmd --add-port={ports}/tcp"
