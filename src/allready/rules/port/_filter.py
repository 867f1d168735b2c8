"""What a node's own packet filter does to its way to node 0, and the command that opens it."""

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Literal

from allready.judging.addresses import datagram_callers, on_link, parse
from allready.model import DropRule, Evidence, FirewallFacts, NetFacts, RollCall
from allready.rules._firewall import nft_chain

Direction = Literal["in", "out"]


def own_drop(firewall: FirewallFacts | None, address: str | None) -> tuple[Direction, DropRule] | None:
    """Whether a rule of this node drops everything from ("in") or to ("out") `address`, and that rule.

    Rules for a port, a protocol without connections, a state, a length or by chance do not explain total silence and
    are passed over, and so are rules that name no address: a filter that drops the rest lets answers in.
    """
    for rule in firewall.drops if firewall is not None and address is not None else ():
        if rule.is_by_address_alone and _covers(rule.sources, address or ""):
            return "in", rule
        if rule.is_by_address_alone and _covers(rule.destinations, address or ""):
            return "out", rule
    return None


def locked_out(roll: RollCall, firewall: FirewallFacts | None, net: NetFacts | None) -> dict[int, DropRule]:
    """Silent nodes whose packets node 0's own filter drops by their address: node rank -> rule.

    A rule names an address and not a node.  So this speaks only when the addresses of one family in node 0's own
    subnets that are dropped whole, and that nobody in the roll has, are as many as the nodes without any sign of life.
    """
    if firewall is None or net is None:
        return {}
    here = {c.address for c in roll.claims} | {c.address for c in roll.callers}
    dropped: dict[bool, dict[str, DropRule]] = {False: {}, True: {}}  # IPv6? -> address -> rule
    for rule in firewall.drops:
        for address in single_hosts(rule.sources) if rule.is_by_address_alone else ():
            if address not in here and on_link(net, address):
                dropped[":" in address][address] = rule
    heard = {*datagram_callers(roll), *(c.node_rank for c in roll.claims)}
    silent = [r for r in roll.missing if r not in heard]
    rules = next((d.values() for d in dropped.values() if len(d) == len(silent)), ())
    return dict(zip(silent, rules, strict=False))


def answers_dropped(firewall: FirewallFacts | None, port: int) -> DropRule | None:
    """The rule of this node that drops its own answers from TCP `port` to everybody, if there is one."""
    for rule in firewall.drops if firewall is not None else ():
        narrowed = rule.is_conditional or rule.ports or rule.destinations or rule.protocol not in {"", "tcp"}
        if rule.is_outbound and not narrowed and any(low <= port <= high for low, high in rule.source_ports):
            return rule
    return None


def accept_command(firewall: FirewallFacts, rule: DropRule, condition: tuple[Direction, str | int]) -> str:
    """What lets pass what `rule` drops: packets from an address, to one, or answers from a TCP port of this node."""
    direction, of = condition
    chain = nft_chain(rule) if firewall.tool == "nft" else ""
    if isinstance(of, int):
        sport = f"tcp sport {of}"
        return (
            f"nft insert rule {chain} {sport} accept" if chain else f"iptables -I OUTPUT -p tcp --sport {of} -j ACCEPT"
        )
    is_ipv6 = ":" in of
    if chain:
        field = "saddr" if direction == "in" else "daddr"
        return f"nft insert rule {chain} {'ip6' if is_ipv6 else 'ip'} {field} {of} accept"
    hook = "INPUT -s" if direction == "in" else "OUTPUT -d"
    return f"{'ip6tables' if is_ipv6 else 'iptables'} -I {hook} {of} -j ACCEPT"


def delete_command(firewall: FirewallFacts, rule: DropRule) -> str:
    """What removes a rule of nft; empty for others, and for policies."""
    chain = nft_chain(rule) if firewall.tool == "nft" else ""
    return f"nft delete rule {chain} handle {rule.handle}" if chain and rule.handle is not None else ""


def filter_evidence(firewall: FirewallFacts | None, node: int) -> tuple[Evidence, ...]:
    """The rules that drop packets on `node`, as they are printed there."""
    if firewall is None:
        return ()
    return tuple(
        Evidence(source=f"packet filter ({firewall.tool or '?'})", node_rank=node, text=rule.text)
        for rule in firewall.drops[:8]
    )


def single_hosts(networks: Iterable[str]) -> Iterator[str]:
    """The single addresses among them; whole subnets name nobody."""
    for text in networks:
        address, _, prefix = text.partition("/")
        if parse(address) is not None and prefix in {"", "32", "128"}:
            yield address


def _covers(networks: Iterable[str], address: str) -> bool:
    wanted = parse(address)
    for text in networks:
        try:
            subnet = ipaddress.ip_network(text, strict=False)
        except ValueError:
            continue
        if wanted is not None and wanted.version == subnet.version and wanted in subnet:
            return True
    return False
