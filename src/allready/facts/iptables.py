"""Read `iptables-save`."""

import re
import shlex

from allready.facts.packet_filter import ALL_PORTS, FilterChain, FilterRule, port_bits

HOOKS = {"INPUT": "input", "PREROUTING": "prerouting", "OUTPUT": "output", "POSTROUTING": "postrouting"}
FILTERING_TABLES = frozenset({"filter", "raw", "mangle", "security"})
ENDING = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "reject", "RETURN": "return"}
MAX_LINES = 100_000


def parse_iptables(text: str, space: str = "ip") -> dict[str, FilterChain]:
    """Chains by "SPACE TABLE CHAIN"; what is not understood makes a rule uncertain, never wrong."""
    chains: dict[str, FilterChain] = {}
    table = ""
    for line in text.splitlines()[:MAX_LINES]:
        if line.startswith("*"):
            table = line[1:].strip()
        elif table in FILTERING_TABLES and (head := re.match(r":(\S+) (\S+)", line)):
            hook = HOOKS.get(head[1])
            chains[f"{space} {table} {head[1]}"] = FilterChain(
                label="" if table == "filter" else f"-t {table}",
                hook=hook,
                family="ip",
                policy="drop" if head[2] == "DROP" else "accept",
            )
        elif table in FILTERING_TABLES and line.startswith("-A "):
            chain = chains.get(f"{space} {table} {line.split()[1]}") if len(line.split()) > 1 else None
            if chain is not None:
                chain.rules.append(_rule(line, f"{space} {table}"))
    for key, chain in chains.items():
        if chain.hook and chain.policy == "drop":
            name = key.rpartition(" ")[2]
            # Reported as its own rule, because "-P INPUT DROP" is how an administrator knows it.
            chain.rules.append(FilterRule(text=f"-P {name} DROP", verdict="drop"))
            chain.policy = "accept"
    return chains


def _rule(line: str, table: str) -> FilterRule:
    try:
        words = shlex.split(line)
    except ValueError:
        return FilterRule(text=line, verdict="none")
    ports = ALL_PORTS
    certain, never, routine = True, False, False
    verdict, target = "none", None
    at, negated = 2, False
    while at < len(words):
        word, value = words[at], words[at + 1] if at + 1 < len(words) else ""
        at += 2
        match word:
            case "!":
                negated = True
                at -= 1
                continue
            case "-p":
                never |= (value in {"tcp", "all", "6", "0"}) == negated
            case "-i" | "-o":
                never |= value == "lo" and not negated
                routine |= never
            case "--dport" | "--dports" | "--destination-port":
                bits = _ports(value)
                ports &= ~bits & ALL_PORTS if negated else bits
            case "--ctstate" | "--state":
                if ("NEW" in value.split(",")) == negated:
                    never = routine = True
            case "--syn":
                at -= 1
                never |= negated
            case "-m" | "--comment" | "--reject-with" | "--log-prefix" | "--log-level":
                pass
            case "-j" | "-g":
                if value in ENDING:
                    verdict = ENDING[value]
                else:
                    verdict, target = ("jump" if word == "-j" else "goto"), f"{table} {value}"
            case _:
                certain = False
                if not value or value.startswith("-"):
                    at -= 1  # an option without a value
        negated = False
    return FilterRule(
        text=line, verdict=verdict, target=target, ports=ports, certain=certain, never=never, routine=routine
    )


def _ports(text: str) -> int:
    bits = 0
    for part in text.split(","):
        if match := re.fullmatch(r"(\d{1,5})(?::(\d{1,5}))?", part):
            bits |= port_bits(int(match[1]), int(match[2] or match[1]))
    return bits
