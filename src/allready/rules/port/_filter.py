"""What a node's own packet filter says about its way to node 0, and the command that opens a port in it."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Literal

from allready.judging.addresses import datagram_callers, on_link, parse
from allready.model import Evidence, FirewallFacts, NetFacts, RollCall

Direction = Literal["in", "out"]

_NOT = r"(!\s+)?"
_NETWORKS = r"\s+(!=|!)?\s*(\{[^}]*\}|\S+)"
_FROM = re.compile(rf"{_NOT}(?:\bsaddr|(?<!\S)-s|--source){_NETWORKS}")
_TO = re.compile(rf"{_NOT}(?:\bdaddr|(?<!\S)-d|--destination){_NETWORKS}")
_NARROWER = re.compile(
    r"\b(?:udp|icmp|icmpv6|sport|dport|sports|dports|limit|numgen|random|statistic|length|ct|state|ctstate)\b"
)
_FROM_PORT = re.compile(r"(?:\bsport|--sports?|--source-ports?)\s+(!=\s*|!\s*)?(\{[^}]*\}|\S+)")
_NFT_CHAIN = re.compile(r"((?:inet|ip|ip6|netdev) [A-Za-z0-9_./-]{1,64} [A-Za-z0-9_./-]{1,64}): ")


def own_drop(firewall: FirewallFacts | None, address: str | None) -> tuple[Direction, str] | None:
    """Whether a rule of this node drops everything from ("in") or to ("out") `address`, and that rule.

    Rules for a port, a protocol without connections, a state, a length or by chance do not explain total silence and
    are passed over, and so are rules that name no address: a filter that drops the rest lets answers in.
    """
    for rule in firewall.drops if firewall is not None and address is not None else ():
        if _NARROWER.search(rule):
            continue
        if _names(_FROM.search(rule), address or ""):
            return "in", rule
        if _names(_TO.search(rule), address or ""):
            return "out", rule
    return None


def locked_out(roll: RollCall, firewall: FirewallFacts | None, net: NetFacts | None) -> dict[int, str]:
    """Silent nodes whose packets node 0's own filter drops by their address: node rank -> rule.

    A rule names an address and not a node.  So this speaks only when the addresses of one family in node 0's own
    subnets that are dropped whole, and that nobody in the roll has, are as many as the nodes without any sign of life.
    """
    if firewall is None or net is None:
        return {}
    here = {c.address for c in roll.claims} | {c.address for c in roll.callers}
    dropped: dict[bool, dict[str, str]] = {False: {}, True: {}}  # IPv6? -> address -> rule
    for rule in firewall.drops:
        match = None if _NARROWER.search(rule) else _FROM.search(rule)
        if match and not (match[1] or match[2]):
            for address in _hosts(match[3]):
                if address not in here and on_link(net, address):
                    dropped[":" in address][address] = rule
    heard = {*datagram_callers(roll), *(c.node_rank for c in roll.claims)}
    silent = [r for r in roll.missing if r not in heard]
    rules = next((d.values() for d in dropped.values() if len(d) == len(silent)), ())
    return dict(zip(silent, rules, strict=False))


def _hosts(networks: str) -> Iterator[str]:
    """The single addresses of a rule; whole subnets name nobody."""
    for text in networks.strip("{} ").split(","):
        address, _, prefix = text.strip().partition("/")
        if parse(address) is not None and prefix in {"", "32", "128"}:
            yield address


def _from(address: str, end: str) -> str:
    return f"{'ip6' if ':' in address else 'ip'} {end} {address} " if address else ""


def way_in_command(firewall: FirewallFacts, rule: str) -> str:
    """What lets the packets in that `rule` drops by their source."""
    chain, match = _NFT_CHAIN.match(rule), _FROM.search(rule)
    address = next(_hosts(match[3]), "ADDRESS") if match else "ADDRESS"
    if firewall.tool == "nft" and chain:
        return f"nft insert rule {chain[1]} {_from(address, 'saddr')}accept"
    return f"{'ip6tables' if ':' in address else 'iptables'} -I INPUT -s {address} -j ACCEPT"


def way_out_command(firewall: FirewallFacts, rule: str, address: str) -> str:
    """What lets this node's own packets out to `address`, which `rule` drops."""
    chain = _NFT_CHAIN.match(rule)
    if firewall.tool == "nft" and chain:
        return f"nft insert rule {chain[1]} {_from(address, 'daddr')}accept"
    return f"{'ip6tables' if ':' in address else 'iptables'} -I OUTPUT -d {address} -j ACCEPT"


def answers_dropped(firewall: FirewallFacts | None, port: int) -> str | None:
    """The rule of this node that drops its own answers from TCP `port` to everybody, if there is one."""
    for rule in firewall.out_drops if firewall is not None else ():
        match = _FROM_PORT.search(rule)
        rest = _FROM_PORT.sub("", rule)
        if match and not match[1] and not _NARROWER.search(rest) and not _TO.search(rest) and _has_port(match[2], port):
            return rule
    return None


def _has_port(ports: str, port: int) -> bool:
    for text in ports.strip("{} ").split(","):
        low, _, high = text.strip().replace(":", "-").partition("-")
        if low.isdecimal() and (high or low).isdecimal() and int(low) <= port <= int(high or low):
            return True
    return False


def answers_command(firewall: FirewallFacts, rule: str, port: int) -> str:
    """What lets this node's answers from TCP `port` out, which `rule` drops."""
    chain = _NFT_CHAIN.match(rule)
    if firewall.tool == "nft" and chain:
        return f"nft insert rule {chain[1]} tcp sport {port} accept"
    return f"iptables -I OUTPUT -p tcp --sport {port} -j ACCEPT"


def rule_for(firewall: FirewallFacts, port: int, *, outward: bool = False) -> str:
    """The rule to show for a dropped port: one that names it, else a policy, else the first."""
    by_fit = (rf"\b{port}\b", r"policy drop|^-P ", "")
    rules = firewall.out_drops if outward else firewall.drops
    found = (r for pattern in by_fit for r in rules if re.search(pattern, r))
    return next(found, firewall.tool or "?")


def filter_evidence(firewall: FirewallFacts | None, node: int) -> tuple[Evidence, ...]:
    """The rules that drop packets on `node`, as they are printed there."""
    if firewall is None:
        return ()
    return tuple(
        Evidence(source=f"packet filter ({firewall.tool or '?'})", node_rank=node, text=r) for r in firewall.drops[:8]
    )


def _names(match: re.Match[str] | None, address: str) -> bool:
    negated = match is not None and (match[1] or match[2])
    return match is not None and not negated and _covers(match[3], address)


def _covers(networks: str, address: str) -> bool:
    wanted = parse(address)
    for text in networks.strip("{} ").split(","):
        try:
            subnet = ipaddress.ip_network(text.strip(), strict=False)
        except ValueError:
            continue
        if wanted is not None and wanted.version == subnet.version and wanted in subnet:
            return True
    return False
