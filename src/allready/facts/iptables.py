"""Read `iptables-save`."""

import re
import shlex

from allready.facts.nft import MAX_LINES
from allready.facts.packet_filter import Condition, FilterChain, FilterRule, filter_rule

HOOKS = {"INPUT": "input", "PREROUTING": "prerouting", "OUTPUT": "output", "POSTROUTING": "postrouting"}
FILTERING_TABLES = frozenset({"filter", "raw", "mangle", "security"})
ENDING = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "reject", "RETURN": "return"}
CONDITIONS = {
    "-p": "protocol", "-i": "interface", "-o": "interface", "-s": "saddr", "-d": "daddr",
    "--source": "saddr", "--destination": "daddr",
    "--dport": "dport", "--dports": "dport", "--destination-port": "dport",
    "--sport": "sport", "--sports": "sport", "--source-port": "sport", "--source-ports": "sport",
    "--ctstate": "state", "--state": "state", "--ctstatus": "status", "--dst-type": "dst_type",
}  # fmt: skip
SILENT = frozenset({"-m", "--comment", "--reject-with", "--log-prefix", "--log-level"})


def parse_iptables(text: str, space: str = "ip") -> dict[str, FilterChain]:
    """Chains by "SPACE TABLE CHAIN"; what is not understood makes a rule uncertain, never wrong."""
    chains: dict[str, FilterChain] = {}
    table = ""
    for line in text.splitlines()[:MAX_LINES]:
        if line.startswith("*"):
            table = line[1:].strip()
        elif table in FILTERING_TABLES and (head := re.match(r":(\S+) (\S+)", line)):
            chains[f"{space} {table} {head[1]}"] = FilterChain(
                name=head[1],
                label="" if table == "filter" else f"-t {table}",
                hook=HOOKS.get(head[1]),
                family="ip",
                policy="drop" if head[2] == "DROP" else "accept",
            )
        elif table in FILTERING_TABLES and line.startswith("-A "):
            chain = chains.get(f"{space} {table} {line.split()[1]}") if len(line.split()) > 1 else None
            if chain is not None:
                chain.rules.append(_rule(line, f"{space} {table}"))
    for chain in chains.values():
        if chain.hook and chain.policy == "drop":
            # As its own rule, because "-P INPUT DROP" is how an administrator knows it.
            chain.rules.append(filter_rule(f"-P {chain.name} DROP", "drop", (), is_policy=True))
            chain.policy = "accept"
    return chains


def _rule(line: str, table: str) -> FilterRule:
    try:
        words = shlex.split(line)
    except ValueError:
        return filter_rule(line, "none", ())
    conditions: list[Condition] = []
    verdict, target = "none", None
    at, negated = 2, False
    while at < len(words):
        word, value = words[at], words[at + 1] if at + 1 < len(words) else ""
        at += 2
        if word == "!":
            negated = True
            at -= 1
            continue
        if word in CONDITIONS:
            values = tuple(v.lower() for v in value.split(","))
            conditions.append(Condition(CONDITIONS[word], values, negated=negated))
        elif word == "--syn":
            at -= 1
            conditions.append(Condition("flags", ("syn",), negated=negated))
        elif word in {"-j", "-g"}:
            if value in ENDING:
                verdict = ENDING[value]
            else:
                verdict, target = ("jump" if word == "-j" else "goto"), f"{table} {value}"
        elif word not in SILENT:
            conditions.append(Condition(""))
            if not value or value.startswith("-"):
                at -= 1  # an option without a value
        negated = False
    return filter_rule(line, verdict, conditions, target=target)
