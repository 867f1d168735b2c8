"""What packet filters of nodes drop, and the commands that let it pass; the facts come from other machines."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from allready.judging.addresses import on_link, unseen_nodes
from allready.judging.stated import evidence_of, said
from allready.judging.values import NodeCommand
from allready.model import DropRule, Evidence, FirewallFacts, NetFacts, RollCall
from allready.model.addresses import is_within, parse, parse_network
from allready.patterns import compiled

DEFAULT_NFT_CHAIN = "inet filter input"
DEFAULT_NFT_OUT_CHAIN = "inet filter output"

Direction = Literal["in", "out"]
MAX_PEERS = 8
MAX_COMMANDS = 3
_TOOLS = ("nft", "iptables", "ufw", "firewalld")
_FALLBACK = "iptables"  # understood nearly everywhere, also where nftables does the work
_CHAIN = r"(?:inet|ip|ip6|netdev) [A-Za-z0-9_./-]{1,64} [A-Za-z0-9_./-]{1,64}"


def opening(
    nodes: Iterable[int], firewall: Mapping[int, FirewallFacts], ports: tuple[int, int], peers: Sequence[str]
) -> list[NodeCommand]:
    """What lets `peers` connect to these ports of `nodes`; nodes with one tool share one command.

    Where the filter could not be read the command is iptables'.
    """
    good = [p for p in peers if parse_network(p) is not None][:MAX_PEERS]
    span = (max(1, min(ports)), min(65535, max(ports)))
    by_tool: dict[tuple[str, str], list[int]] = {}
    for node in nodes:
        facts = firewall.get(node)
        tool = facts.tool if facts is not None and facts.tool in _TOOLS else ""
        chain = nft_chain(rule_for(facts, span)) if facts is not None and tool == "nft" else ""
        by_tool.setdefault((tool or "", chain), []).append(node)
    known = {key: found for key, found in by_tool.items() if key[0]} or by_tool
    return [
        (open_command(tool or _FALLBACK, span, good, chain=chain), tuple(found))
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
            command = _nft(4, (), ports, chain)
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


def own_drop(firewall: FirewallFacts | None, address: str | None) -> tuple[Direction, DropRule] | None:
    """The rule of this node that drops everything from ("in") or to ("out") `address`; None without one.

    Rules for a port, a protocol without connections, a state, a length or by chance do not explain total silence and
    are passed over, and so are rules that name no address: a filter that drops the rest lets answers in.
    """
    for rule in firewall.drops if firewall is not None and address is not None else ():
        if rule.is_by_address_alone and is_within(address or "", rule.sources):
            return "in", rule
        if rule.is_by_address_alone and is_within(address or "", rule.destinations):
            return "out", rule
    return None


def locked_out(roll: RollCall, firewall: FirewallFacts | None, net: NetFacts | None) -> dict[int, DropRule]:
    """Silent nodes whose packets node 0's own filter drops by their address: node rank -> rule.

    A rule names an address and not a node.  Nodes are named only when the addresses of one family in node 0's own
    subnets that are dropped whole, and that no node in the roll has, are as many as the nodes without any sign of life.
    """
    if firewall is None or net is None:
        return {}
    present = {c.address for c in roll.claims} | {c.address for c in roll.callers}
    dropped: dict[bool, dict[str, DropRule]] = {False: {}, True: {}}  # IPv6? -> address -> rule
    for rule in firewall.drops:
        for address in single_hosts(rule.sources) if rule.is_by_address_alone else ():
            if address not in present and on_link(net, address):
                dropped[":" in address][address] = rule
    silent = unseen_nodes(roll)
    rules = next((d.values() for d in dropped.values() if len(d) == len(silent)), ())
    return dict(zip(silent, rules, strict=False))


def answers_dropped(firewall: FirewallFacts | None, port: int) -> DropRule | None:
    """The rule of this node that drops its own answers from TCP `port` to all others, if there is one."""
    for rule in firewall.drops if firewall is not None else ():
        narrowed = rule.is_conditional or rule.ports or rule.destinations or not rule.is_of_tcp
        if rule.is_outbound and not narrowed and any(low <= port <= high for low, high in rule.source_ports):
            return rule
    return None


def filter_evidence(firewall: FirewallFacts | None, node: int) -> tuple[Evidence, ...]:
    """The rules that drop packets on `node`, as its tool prints them."""
    if firewall is None:
        return ()
    source = said("packet filter[[ ({tool})]]", tool=firewall.tool or None)
    return tuple(evidence_of(source, rule.text, node_rank=node) for rule in firewall.drops[:8])


def single_hosts(networks: Iterable[str]) -> Iterator[str]:
    """The single addresses among them, without whole subnets."""
    for text in networks:
        address, _, prefix = text.partition("/")
        if parse(address) is not None and prefix in {"", "32", "128"}:
            yield address


def nft_chain(rule: DropRule | None) -> str:
    """The chain of a rule as a command may name it; empty where it is no such name."""
    return rule.chain if rule is not None and compiled(_CHAIN).fullmatch(rule.chain) else ""


def accept_command(firewall: FirewallFacts, rule: DropRule, condition: tuple[Direction, str | int]) -> str:
    """What lets pass what `rule` drops: packets from an address, to one, or answers from a TCP port of this node."""
    direction, of = condition
    chain = nft_chain(rule) if firewall.tool == "nft" else ""
    if isinstance(of, int):
        match = f"tcp sport {of}" if chain else f"OUTPUT -p tcp --sport {of}"
        return f"nft insert rule {chain} {match} accept" if chain else f"iptables -I {match} -j ACCEPT"
    family = "6" if ":" in of else ""
    if chain:
        return f"nft insert rule {chain} ip{family} {'saddr' if direction == 'in' else 'daddr'} {of} accept"
    return f"ip{family}tables -I {'INPUT -s' if direction == 'in' else 'OUTPUT -d'} {of} -j ACCEPT"


def delete_command(firewall: FirewallFacts, rule: DropRule) -> str:
    """What removes a rule of nft; empty for others, and for policies."""
    chain = nft_chain(rule) if firewall.tool == "nft" else ""
    return f"nft delete rule {chain} handle {rule.handle}" if chain and rule.handle is not None else ""


def open_command(tool: str, ports: tuple[int, int], peers: Iterable[str], *, chain: str = "") -> str:
    """The shell line, for root, that lets `peers` connect to TCP `ports` through the firewall that is there.

    Args:
        tool: `FirewallFacts.tool`: nft, iptables, ufw or firewalld.
        ports: the first and the last.
        peers: addresses or networks; () for all.
        chain: of nft, `nft_chain` of the rule that drops.

    Raises:
        ValueError: a peer is no address, a port is no port, or the tool is another one.
    """
    if not 0 < ports[0] <= ports[1] < 65536:
        raise ValueError(f"not TCP ports: {ports}")
    by_family: dict[int, list[str]] = {4: [], 6: []}
    for peer in dict.fromkeys(peers):
        network = parse_network(peer)
        if network is None:
            raise ValueError(f"no address: {peer}")
        by_family[network.version].append(peer if network.num_addresses == 1 else str(network))
    groups = [(family, found) for family, found in by_family.items() if found] or [(4, [])]
    match tool:
        case "nft":
            lines = [_nft(family, found, ports, chain or DEFAULT_NFT_CHAIN) for family, found in groups]
        case "iptables":
            lines = [_iptables(family, found, ports) for family, found in groups]
        case "ufw":
            to = f"to any port {_span(ports, ':')}"
            lines = [f"ufw insert 1 allow proto tcp from {p} {to}" for _, found in groups for p in found or ["any"]]
        case "firewalld":
            lines = [line for family, found in groups for line in _firewalld(family, found, _span(ports, "-"))]
        case _:
            raise ValueError(f"no such firewall: {tool} (nft, iptables, ufw, firewalld)")
    return " && ".join(lines)


def _span(ports: tuple[int, int], to: str) -> str:
    return str(ports[0]) if ports[0] == ports[1] else f"{ports[0]}{to}{ports[1]}"


def _nft(family: int, peers: Sequence[str], ports: tuple[int, int], chain: str) -> str:
    addresses = peers[0] if len(peers) == 1 else f"{{ {', '.join(peers)} }}"
    source = f"{'ip' if family == 4 else 'ip6'} saddr {addresses} " if peers else ""
    rule = f"{source}tcp dport {_span(ports, '-')} accept"
    return f"nft insert rule {chain} {shlex.quote(rule) if '{' in rule else rule}"


def _iptables(family: int, peers: Sequence[str], ports: tuple[int, int]) -> str:
    source = f" -s {','.join(peers)}" if peers else ""
    return f"{'iptables' if family == 4 else 'ip6tables'} -I INPUT -p tcp{source} --dport {_span(ports, ':')} -j ACCEPT"


def _firewalld(family: int, peers: Sequence[str], ports: str) -> Iterator[str]:
    for peer in peers:
        rule = f'rule family="ipv{family}" source address="{peer}" port port="{ports}" protocol="tcp" accept'
        yield f"firewall-cmd --add-rich-rule={shlex.quote(rule)}"
    if not peers:
        yield f"firewall-cmd --add-port={ports}/tcp"
