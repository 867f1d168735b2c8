"""What a packet filter does to a new TCP connection from another machine; nft and iptables are read into this.

Ports are sets of 0 to 65535, as the bits of one integer: union is |, intersection is &.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

ALL_PORTS = (1 << 65536) - 1
MAX_DEPTH = 16
MAX_STEPS = 50_000
INBOUND = frozenset({"input", "prerouting", "ingress"})
OUTBOUND = frozenset({"output", "postrouting"})
WATCHED = INBOUND | OUTBOUND  # forwarding is for other machines' packets
DROPPING = frozenset({"drop", "reject"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRule:
    """One rule.  `never`: it cannot concern a new TCP connection from another machine."""

    text: str
    verdict: str  # accept, drop, reject, jump, goto, return, none
    target: str | None = None  # key of the chain that jump and goto lead to
    ports: int = ALL_PORTS
    certain: bool = True  # False: it has conditions (an address, a length, a rate) that we do not weigh
    never: bool = False
    routine: bool = False  # drops only what every firewall drops (invalid packets, forged loopback)


@dataclass(slots=True, kw_only=True)
class FilterChain:
    """A chain; one with a hook is where the kernel begins."""

    label: str
    hook: str | None = None
    family: str = "inet"
    policy: str = "accept"
    rules: list[FilterRule] = field(default_factory=list)


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


def dropped_ports(chains: dict[str, FilterChain], hooks: frozenset[str] = INBOUND) -> tuple[tuple[int, int], ...]:
    """Ports whose new connections certainly do not get in (or out); where a condition decides, nothing is claimed."""
    dropped = 0
    walk = _Walk(chains)
    for chain in chains.values():
        if chain.hook in hooks and chain.family in {"ip", "inet", "netdev"}:
            left, found = walk.through(chain, ALL_PORTS, 0)
            dropped |= found | (left if chain.policy == "drop" else 0)
    return () if walk.steps > MAX_STEPS else tuple(port_ranges(dropped))


def drop_rules(chains: dict[str, FilterChain], hooks: frozenset[str] = WATCHED) -> Iterator[str]:
    """Rules that drop or reject packets to or from this machine, with the chain they stand in."""
    for chain in _reachable(chains, hooks):
        for rule in chain.rules:
            if rule.verdict in DROPPING and not rule.routine:
                yield f"{chain.label}: {rule.text}" if chain.label else rule.text
        if chain.hook in hooks and chain.policy == "drop":
            yield f"{chain.label}: policy drop"


def is_active(chains: dict[str, FilterChain]) -> bool:
    """Whether anything at all filters packets to or from this machine."""
    return any(chain.rules or chain.policy == "drop" for chain in chains.values() if chain.hook in WATCHED)


def _reachable(chains: dict[str, FilterChain], hooks: frozenset[str]) -> Iterable[FilterChain]:
    found: dict[str, FilterChain] = {}
    waiting = [key for key, chain in chains.items() if chain.hook in hooks]
    while waiting:
        key = waiting.pop(0)
        if key in chains and key not in found:
            found[key] = chains[key]
            waiting.extend(rule.target for rule in chains[key].rules if rule.target)
    return found.values()


class _Walk:
    """Follows the rules in their order; gives up, claiming nothing, on a rule set of absurd size."""

    def __init__(self, chains: dict[str, FilterChain]) -> None:
        self._chains = chains
        self.steps = 0

    def through(self, chain: FilterChain, ports: int, depth: int) -> tuple[int, int]:
        """(ports that leave the chain undecided, ports dropped in it)."""
        dropped = fallen = 0  # fallen: left this chain early, back to where it was called
        for rule in chain.rules:
            self.steps += 1
            hit = ports & rule.ports
            if self.steps > MAX_STEPS or not ports:
                break
            if rule.never or not hit:
                continue
            match rule.verdict:
                case "accept":
                    ports &= ~hit  # also under a condition: then it is not certain that the port is closed
                case "drop" | "reject" if rule.certain:
                    dropped |= hit
                    ports &= ~hit
                case "return":
                    fallen |= hit
                    ports &= ~hit
                case "jump" | "goto":
                    target = self._chains.get(rule.target or "")
                    if target is None or depth >= MAX_DEPTH:
                        continue
                    left, inner = self.through(target, hit, depth + 1)
                    if not rule.certain:
                        ports &= ~hit | left | inner
                    elif rule.verdict == "goto":
                        dropped, fallen, ports = dropped | inner, fallen | left, ports & ~hit
                    else:
                        dropped, ports = dropped | inner, ports & ~hit | left
        return ports | fallen, dropped
