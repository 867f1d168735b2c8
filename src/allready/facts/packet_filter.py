"""What a packet filter does to a new TCP connection from another machine; nft and iptables are read into this.

Ports are sets of 0 to 65535, as the bits of one integer: union is |, intersection is &.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.model import DropRule
from allready.model.facts import TCP

ALL_PORTS = (1 << 65536) - 1
MAX_DEPTH = 16
MAX_STEPS = 50_000
MAX_RULE_CHARS = 300
MAX_VALUES = 64
MAX_INTERFACES = 16
INBOUND = frozenset({"input", "prerouting", "ingress"})
OUTBOUND = frozenset({"output", "postrouting"})
WATCHED = INBOUND | OUTBOUND  # forwarding is for other machines' packets
PLACES = frozenset({"interface", "saddr", "daddr", "dst_type"})
"""Conditions on where a packet comes from and goes to."""
TRANSLATED = frozenset({"dnat", "snat"})
DROPPING = frozenset({"drop", "reject"})
SERVICES = {"ssh": 22, "http": 80, "https": 443, "domain": 53, "ftp": 21, "telnet": 23, "smtp": 25, "sunrpc": 111,
            "nfs": 2049}  # fmt: skip


class Condition(Struct, frozen=True):
    """What a packet must have for a rule to apply.

    what: "interface", "state" and "status" (of the connection), "protocol", "family" (ipv4 or ipv6), "flags" (of TCP
    that are set), "dport", "sport", "daddr", "saddr", "dst_type" (local: of this machine); anything else is a condition
    that is not weighed.
    """

    what: str
    values: tuple[str, ...] = ()
    negated: bool = False


class FilterRule(Struct, frozen=True, kw_only=True):
    """One rule.  `never`: it cannot concern a new TCP connection from another machine."""

    verdict: str  # accept, drop, reject, jump, goto, return, none
    drop: DropRule  # the same rule as what is reported of it, if it drops packets
    target: str | None = None  # key of the chain that jump and goto lead to
    ports: int = ALL_PORTS
    certain: bool = True  # False: it has conditions (a length, a rate) that we do not weigh
    places: tuple[Condition, ...] = ()  # its conditions on where packets come from and go to
    never: bool = False
    routine: bool = False  # drops only what every firewall drops (invalid packets, forged loopback)


class FilterChain(Struct, kw_only=True):
    """A chain; one with a hook is where the kernel begins."""

    name: str  # as its tool calls it
    label: str = ""  # in front of its rules in reports
    hook: str | None = None
    family: str = "inet"
    policy: str = "accept"
    rules: list[FilterRule] = []


def filter_rule(
    text: str,
    verdict: str,
    conditions: Iterable[Condition],
    *,
    target: str | None = None,
    handle: int | None = None,
    is_policy: bool = False,
) -> FilterRule:
    """Weigh the conditions of one rule: which new TCP connections from elsewhere it decides, and what it reports."""
    ports = source_ports = ALL_PORTS
    certain, never, routine, is_conditional = True, False, False, False
    names: dict[str, tuple[str, ...]] = {}
    conditions = tuple(conditions)
    for condition in conditions:
        values, negated = condition.values, condition.negated
        match condition.what:
            case "interface" if "lo" in values and not negated:
                never = routine = True
            case "state" | "flags":
                if (("new" if condition.what == "state" else "syn") in values) == negated:
                    never = routine = True
                is_conditional = True
            case "status" if TRANSLATED.issuperset(values) and values:
                never |= not negated  # of connections to ports that are forwarded, which those of a job are not
            case "protocol":
                never |= (not TCP.isdisjoint(values)) == negated
            case "family":
                never |= ("ipv6" in values) != negated
            case "dport" | "sport" as what:
                bits = ports_of(values)
                if not bits:  # a set that could not be read
                    certain, is_conditional = False, True
                chosen = (~bits & ALL_PORTS if negated else bits) if bits else ALL_PORTS
                ports, source_ports = (ports & chosen, source_ports) if what == "dport" else (ports, chosen)
                certain &= what == "dport"
            case what if what in PLACES:
                is_conditional |= negated and what in {"saddr", "daddr"}
            case _:
                certain, is_conditional = False, True
        if not negated:
            names[condition.what] = values
    return FilterRule(
        verdict=verdict,
        target=target,
        ports=ports,
        certain=certain,
        places=tuple(c for c in conditions if c.what in PLACES),
        never=never,
        routine=routine,
        drop=DropRule(
            text=text,
            verdict=verdict,
            handle=handle,
            is_policy=is_policy,
            protocols=names.get("protocol", ())[:MAX_VALUES],
            interfaces=names.get("interface", ())[:MAX_VALUES],
            sources=names.get("saddr", ())[:MAX_VALUES],
            destinations=names.get("daddr", ())[:MAX_VALUES],
            source_ports=() if source_ports == ALL_PORTS else tuple(port_ranges(source_ports))[:MAX_VALUES],
            ports=() if ports == ALL_PORTS else tuple(port_ranges(ports))[:MAX_VALUES],
            is_conditional=is_conditional,
        ),
    )


def ports_of(values: Iterable[str]) -> int:
    """The ports of "22", "80-90", "80:90" or a service's name; 0 where none of the values is one of these."""
    bits = 0
    for value in values:
        if match := re.fullmatch(r"(\d{1,5})(?:[-:](\d{1,5}))?", value):
            bits |= port_bits(int(match[1]), int(match[2] or match[1]))
        elif value in SERVICES:
            bits |= 1 << SERVICES[value]
    return bits


def port_bits(low: int, high: int) -> int:
    """The ports low to high, both included; nothing for what are no ports."""
    low, high = max(low, 0), min(high, 65535)
    return ((1 << (high - low + 1)) - 1) << low if low <= high else 0


def port_ranges(bits: int) -> Iterator[tuple[int, int]]:
    """Inclusive ranges of a set of ports, from 1 on."""
    bits &= ALL_PORTS & ~1
    low = 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        low, bits = low + skip, bits >> skip
        length = (~bits & (bits + 1)).bit_length() - 1
        yield low, low + length - 1
        low, bits = low + length, bits >> length


class Packet(Struct, frozen=True, kw_only=True):
    """What is known of a new connection: the peer's address, and the interface by which it comes or goes."""

    peer: str | None = None
    interface: str | None = None

    def fits(self, condition: Condition, *, is_outbound: bool) -> bool | None:
        """Whether a condition on an interface or an address holds for it; None where that is not known."""
        if condition.what == "interface":
            # Without an interface a rule for one real interface is taken as one for all: connections do come in there.
            # One for all but some says nothing: the job may use just these.
            if self.interface is None and condition.negated and set(condition.values) != {"lo"}:
                return None
            return self.interface is None or _is_named(self.interface, condition.values) != condition.negated
        if condition.what == "dst_type":
            if not _DST_TYPES.issuperset(condition.values):
                return None
            return (("unicast" if is_outbound else "local") in condition.values) != condition.negated
        if self.peer is None or condition.what != ("daddr" if is_outbound else "saddr"):
            return None
        found = [_has(value, self.peer) for value in condition.values]
        if True in found:
            return not condition.negated
        return None if None in found or not found else condition.negated


ANY = Packet()
_DST_TYPES = frozenset({"local", "unicast", "broadcast", "multicast", "anycast"})
"""Of these a new connection is to one: `local` where it comes in, `unicast` where it goes out."""


def _is_named(interface: str, names: Iterable[str]) -> bool:
    """Also by the beginning of its name: `eth*` of nft, `eth+` of iptables."""
    return any(interface == n or (n[-1:] in {"*", "+"} and interface.startswith(n[:-1])) for n in names)


def _has(value: str, address: str) -> bool | None:
    """Whether an address, a network or a range has this address; None for what is none of these."""
    try:
        wanted = ipaddress.ip_address(address)
        if "-" in value:
            low, high = (ipaddress.ip_address(part) for part in value.split("-"))
            return low.version == wanted.version and int(low) <= int(wanted) <= int(high)
        return wanted in ipaddress.ip_network(value, strict=False)
    except ValueError:
        return None


def interfaces_named(chains: dict[str, FilterChain], known: Iterable[str] = ()) -> tuple[str, ...]:
    """The interfaces for which there are rules, of those that are `known` also by the beginning of a name.

    Last comes "", an interface of another name; none at all where no rule names any.
    """
    conditions = (c for chain in chains.values() for rule in chain.rules for c in rule.places if c.what == "interface")
    names = tuple(dict.fromkeys(name for condition in conditions for name in condition.values if name != "lo"))
    found = (name for name in dict.fromkeys((*names, *known)) if name[-1:] not in {"*", "+"} and _is_named(name, names))
    return (*tuple(found)[:MAX_INTERFACES], "") if names else ()


def dropped_ports(
    chains: dict[str, FilterChain], hooks: frozenset[str] = INBOUND, packet: Packet = ANY
) -> tuple[tuple[int, int], ...]:
    """Ports whose new connections certainly do not get in (or out); where a condition decides, nothing is claimed."""
    dropped = 0
    walk = _Walk(chains, packet, is_outbound=hooks == OUTBOUND)
    for chain in chains.values():
        if chain.hook in hooks and chain.family in {"ip", "inet", "netdev"}:
            left, found = walk.through(chain, ALL_PORTS, 0)
            dropped |= found | (left if chain.policy == "drop" else 0)
    return () if walk.steps > MAX_STEPS else tuple(port_ranges(dropped))


def drop_rules(chains: dict[str, FilterChain]) -> Iterator[DropRule]:
    """Rules and policies that drop or reject packets to or from this machine, with the chain they stand in."""
    for chain, hooks in _reached(chains):
        rules = [r.drop for r in chain.rules if r.verdict in DROPPING and not r.routine]
        if chain.hook in WATCHED and chain.policy == "drop":
            rules.append(DropRule(text="policy drop", verdict="drop", is_policy=True))
        for rule in rules:
            text = f"{chain.label}: {rule.text}" if chain.label else rule.text
            yield replace(rule, text=text[:MAX_RULE_CHARS], chain=chain.name, hooks=hooks)


def is_active(chains: dict[str, FilterChain]) -> bool:
    """Whether anything at all filters packets to or from this machine."""
    return any(chain.rules or chain.policy == "drop" for chain in chains.values() if chain.hook in WATCHED)


def _reached(chains: dict[str, FilterChain]) -> Sequence[tuple[FilterChain, tuple[str, ...]]]:
    """Chains that packets to or from this machine come to, each with the hooks from which they do."""
    found: dict[str, set[str]] = {}
    waiting = [(key, chain.hook) for key, chain in chains.items() if chain.hook in WATCHED]
    while waiting:
        key, hook = waiting.pop(0)
        if key in chains and hook is not None and hook not in found.setdefault(key, set()):
            found[key].add(hook)
            waiting += [(rule.target, hook) for rule in chains[key].rules if rule.target]
    return [(chains[key], tuple(sorted(hooks))) for key, hooks in found.items()]


class _Walk:
    """Follows the rules in their order; gives up, claiming nothing, on a rule set of absurd size."""

    def __init__(self, chains: dict[str, FilterChain], packet: Packet, *, is_outbound: bool) -> None:
        self._chains = chains
        self._packet = packet
        self._is_outbound = is_outbound
        self.steps = 0

    def _applies(self, rule: FilterRule) -> bool | None:
        """Whether the rule decides on these connections; None where a condition is not known to hold."""
        found = [self._packet.fits(condition, is_outbound=self._is_outbound) for condition in rule.places]
        if rule.never or False in found:
            return False
        return True if rule.certain and None not in found else None

    def through(self, chain: FilterChain, ports: int, depth: int) -> tuple[int, int]:
        """(ports that leave the chain undecided, ports dropped in it)."""
        dropped = fallen = 0  # fallen: left this chain early, back to where it was called
        for rule in chain.rules:
            self.steps += 1
            hit = ports & rule.ports
            if self.steps > MAX_STEPS or not ports:
                break
            applies = self._applies(rule) if hit else False
            if applies is False:
                continue
            match rule.verdict:
                case "accept":
                    ports &= ~hit  # also under a condition: then it is not certain that the port is closed
                case "drop" | "reject" if applies:
                    dropped |= hit
                    ports &= ~hit
                case "return":
                    fallen |= hit if applies else 0  # under a condition: what is behind it here may let them in
                    ports &= ~hit
                case "jump" | "goto":
                    target = self._chains.get(rule.target or "")
                    if target is None or depth >= MAX_DEPTH:
                        continue
                    left, inner = self.through(target, hit, depth + 1)
                    if not applies:
                        ports &= ~hit | left | inner
                    elif rule.verdict == "goto":
                        dropped, fallen, ports = dropped | inner, fallen | left, ports & ~hit
                    else:
                        dropped, ports = dropped | inner, ports & ~hit | left
        return ports | fallen, dropped
