"""The local packet filter, as far as this user may read it, and the command that opens a port in it."""

import contextlib
import ipaddress
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.host import Host, text_of
from allready.facts.iptables import parse_iptables
from allready.facts.net import parse_routes
from allready.facts.nft import parse_nft, parse_nft_json, rule_texts
from allready.facts.packet_filter import (
    OUTBOUND,
    FilterChain,
    Packet,
    drop_rules,
    dropped_ports,
    interfaces_named,
    is_active,
)
from allready.facts.tasks import Task
from allready.facts.usage import MAX_PEERS
from allready.model import FilterView, FirewallFacts, Route
from allready.proc.process import status_bits

CAP_NET_ADMIN = 12
MAX_DROPS = 64
MAX_PORT_RANGES = 256
MAX_ADDRESSES = 4
SPACES = {"iptables-save": "ip", "iptables-legacy-save": "legacy"}


def collect_firewall(host: Host, *, timeout_s: float, peers: Sequence[str] = ()) -> FirewallFacts:
    """What drops packets here.  Starts no program when this user may not read the rules anyway.

    ufw and firewalld are recognised by their chains: their own tools take a Python start each, and show no more.

    Args:
        peers: names or addresses of machines whose connections are followed through the rules.

    Raises:
        FactUnavailable: the rules cannot be read; the message says which firewall there is, if that shows.
    """
    if not _may_read(host):
        manager = _manager_by_files(host)
        if not manager:
            raise FactUnavailable("reading the packet filter needs root (CAP_NET_ADMIN)")
        form = "reading the packet filter needs root (CAP_NET_ADMIN); {manager} is in use here"
        raise FactUnavailable(form, manager=manager)
    why: list[FactUnavailable] = []
    nft = _read_nft(host, timeout_s / 2, why)
    chains, tool = dict(nft or {}), "nft"
    # Tables that iptables keeps inside nftables are listed by nft with holes; those of old kernels not at all.
    commands = ["iptables-save"] if nft is None or any(map(_is_iptables, nft)) else []
    if text_of(host, "/proc/net/ip_tables_names").strip():
        commands.append("iptables-legacy-save")
    for command in commands:
        own = _read(host, command, timeout_s / 4, partial(parse_iptables, space=SPACES[command]), why)
        if own is not None and is_active(own):
            kept = {k: c for k, c in chains.items() if not _is_iptables(k)} if tool == "nft" else chains
            tool, chains = "iptables", kept | own
    if nft is None and len(why) > len(commands):
        raise FactUnavailable.all_of(why)
    names = (line.partition(":")[0].strip() for line in text_of(host, "/proc/net/dev").splitlines()[2:])
    return summary(chains, tool, _packets_of(host, peers[:MAX_PEERS], timeout_s / 2) if peers else (), names)


def summary(
    chains: dict[str, FilterChain], tool: str, packets: Iterable[Packet] = (), interfaces: Iterable[str] = ()
) -> FirewallFacts:
    """Facts of chains that were read with `tool`.

    Args:
        packets: connections of which more is known.
        interfaces: names of this machine's.
    """
    if not is_active(chains):
        return FirewallFacts(tool=None)
    return FirewallFacts(
        tool=_manager(chains) or tool,
        drops=tuple(islice(drop_rules(chains), MAX_DROPS)),
        dropped_ports=dropped_ports(chains)[:MAX_PORT_RANGES],
        out_dropped_ports=dropped_ports(chains, OUTBOUND)[:MAX_PORT_RANGES],
        views=tuple(
            FilterView(
                peer=packet.peer,
                interface=packet.interface,
                dropped_ports=dropped_ports(chains, packet=packet)[:MAX_PORT_RANGES],
                out_dropped_ports=dropped_ports(chains, OUTBOUND, packet)[:MAX_PORT_RANGES],
            )
            for packet in (*packets, *(Packet(interface=name) for name in interfaces_named(chains, interfaces)))
        ),
    )


def _packets_of(host: Host, peers: Sequence[str], timeout_s: float) -> Iterator[Packet]:
    """Connections of these machines by their IPv4 addresses, with the interface that leads to them."""
    asked = [Task(partial(host.resolve, peer, timeout_s=timeout_s), "firewall-peer") for peer in peers]
    routes = list(parse_routes(text_of(host, "/proc/net/route")))
    until = time.monotonic() + timeout_s
    for task in asked:
        with contextlib.suppress(FactUnavailable, DeadlineExceeded):
            addresses = task.result(timeout_s=until - time.monotonic())
            for address in [a for a in addresses if ":" not in a][:MAX_ADDRESSES]:
                yield Packet(peer=address, interface=_interface_to(address, routes))


def _interface_to(address: str, routes: Iterable[Route]) -> str | None:
    """The interface of the narrowest route to an address."""
    wanted = ipaddress.ip_address(address)
    fitting = [
        (n.prefixlen, -r.metric, r.interface) for r in routes if wanted in (n := ipaddress.ip_network(r.destination))
    ]
    return max(fitting)[2] if fitting else None


def _read_nft(host: Host, timeout_s: float, why: list[FactUnavailable]) -> dict[str, FilterChain] | None:
    """nftables' chains.  The text is what people know and what reports show; JSON says without doubt what it means."""
    listed: list[str] = []

    def parse(text: str) -> dict[str, FilterChain]:
        listed.append(text)
        return parse_nft(text)

    chains = _read(host, "nft -a list ruleset", timeout_s / 2, parse, why)
    if chains is None:
        return None
    exact = _read(
        host, "nft -j list ruleset", timeout_s / 2, lambda text: parse_nft_json(text, rule_texts(listed[0])), []
    )
    return chains if exact is None else exact


def _read(
    host: Host,
    command: str,
    timeout_s: float,
    parse: Callable[[str], dict[str, FilterChain]],
    why: list[FactUnavailable],
) -> dict[str, FilterChain] | None:
    """What a command lists; None, and a line more in `why`, when it does not."""
    try:
        return parse(host.run(command.split(), timeout_s=timeout_s))
    except FactUnavailable as error:
        why.append(error)
        return None


def _may_read(host: Host) -> bool:
    capabilities = status_bits(text_of(host, "/proc/self/status"), "CapEff")
    return capabilities is None or bool(capabilities >> CAP_NET_ADMIN & 1)  # None: then the tools themselves report it


def _manager(chains: dict[str, FilterChain]) -> str | None:
    """ufw or firewalld, when these are its chains."""
    names = " ".join(chains)
    if "ufw-user-input" in names or "ufw-before-input" in names:
        return "ufw"
    return "firewalld" if " firewalld " in names or "INPUT_ZONES" in names else None


def _manager_by_files(host: Host) -> str | None:
    for path, pattern, name in (
        ("/etc/ufw/ufw.conf", r"^ENABLED=yes", "ufw"),
        ("/run/firewalld.pid", r"^\d+", "firewalld"),
    ):
        if re.search(pattern, text_of(host, path), re.MULTILINE):
            return name
    return None


def _is_iptables(key: str) -> bool:
    family, table, chain = [*key.split(" "), "", ""][:3]
    return family == "ip" and table in {"filter", "nat", "mangle", "raw", "security"} and chain.isupper()
