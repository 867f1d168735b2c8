"""Packet filters in tests of rules: rules as their tools print them, read as a node reads its own."""

from collections.abc import Iterator

from allready.facts.firewall import summary
from allready.facts.iptables import parse_iptables
from allready.facts.nft import parse_nft
from allready.model import DropRule


def drops_of(*printed: str) -> tuple[DropRule, ...]:
    """What a node would report of these rules: "inet t out: tcp dport 1 drop" of nft, "-A INPUT -j DROP" of iptables.

    A chain of nft whose name begins with "out" is one for packets that leave.
    """
    return tuple(drop for text in printed for drop in _drops(text))


def _drops(text: str) -> Iterator[DropRule]:
    if text.startswith("-"):
        policy = "DROP" if text.startswith("-P") else "ACCEPT"
        hook = "OUTPUT" if "OUTPUT" in text else "INPUT"
        rule = text if text.startswith("-A") else ""
        yield from summary(parse_iptables(f"*filter\n:{hook} {policy} [0:0]\n{rule}\nCOMMIT\n"), "iptables").drops
        return
    place, _, rule = text.partition(": ")
    family, table, chain = place.split()
    hook = "output" if chain.startswith("out") else "input"
    policy, line = ("drop", "") if rule == "policy drop" else ("accept", f"\t\t{rule}\n")
    head = f"\t\ttype filter hook {hook} priority filter; policy {policy};\n"
    listed = f"table {family} {table} {{\n\tchain {chain} {{\n{head}{line}\t}}\n}}\n"
    yield from summary(parse_nft(listed), "nft").drops
