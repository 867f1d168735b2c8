"""Read `nft list ruleset`."""

import re
from collections.abc import Iterator

from allready.facts.packet_filter import ALL_PORTS, FilterChain, FilterRule, port_bits

_WORDS = re.compile(r'"[^"]*"|\{[^{}]*\}|[^\s{}"]+')
_QUOTED = re.compile(r'"[^"]*"')
_VERDICTS = frozenset({"accept", "drop", "reject", "jump", "goto", "return", "continue", "queue"})
_OTHER_PROTOCOLS = frozenset({"udp", "udplite", "icmp", "icmpv6", "sctp", "dccp", "esp", "ah", "igmp"})
MAX_LINES = 100_000

Sets = dict[str, int]  # name of a set -> its ports


def parse_nft(text: str) -> dict[str, FilterChain]:
    """Chains by "family table chain"; what is not understood makes a rule uncertain, never wrong."""
    sections = list(_sections(text))
    sets = {key: _ports(_elements(lines), {}) for kind, key, lines in sections if kind == "set"}
    chains: dict[str, FilterChain] = {}
    for kind, key, lines in sections:
        if kind != "chain" or key.startswith("dormant "):
            continue
        table = key.rpartition(" ")[0]
        chain = FilterChain(label=key, family=key.partition(" ")[0])
        local = {name.rpartition(" ")[2]: ports for name, ports in sets.items() if name.rpartition(" ")[0] == table}
        for line in lines:
            head = re.match(r"type \w+ hook (\w+)(?: devices? .*?)? priority [^;]+;(?: policy (\w+);)?", line)
            if head:
                chain.hook, chain.policy = head[1], head[2] or "accept"
                if not line.startswith("type filter"):
                    chain.hook = None  # nat and route chains do not filter
            elif line and line[0] != "#":
                chain.rules.extend(_rules(line, table, local))
        chains[key] = chain
    return chains


def _sections(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """("chain" or "set", "family table name", its lines), a line ending only where its braces are closed."""
    table = None
    kind = key = None
    lines: list[str] = []
    whole = ""
    for raw in text.splitlines()[:MAX_LINES]:
        line = raw.strip()
        opened = re.fullmatch(r"(table|chain|set|map|flowtable|\w+) ([^{}]*)\{(?: #.*)?", line)
        if table is None:
            words = opened[2].split() if opened and opened[1] == "table" else []
            table = f"{words[0]} {words[1]}" if len(words) == 2 else None
        elif key is None:
            if opened:
                kind, key, lines, whole = opened[1], f"{table} {opened[2].strip()}", [], ""
            elif line == "}":
                table = None
            elif line.startswith("flags dormant"):
                table = f"dormant {table}"  # the kernel does not evaluate it, nor do we
        elif line == "}" and not whole:
            yield str(kind), key, lines
            key = None
        else:
            whole = f"{whole} {line}".strip()
            bare = _QUOTED.sub("", whole)
            if bare.count("{") <= bare.count("}"):
                lines.append(whole)
                whole = ""


def _elements(lines: list[str]) -> str:
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("elements =")), "")


def _rules(line: str, table: str, sets: Sets) -> Iterator[FilterRule]:
    rule = _Rule(line, table, sets)
    rule.read()
    yield from rule.results


class _Rule:
    """One line, read from left to right: conditions, then the verdict."""

    def __init__(self, line: str, table: str, sets: Sets) -> None:
        self._line = re.sub(r"counter packets \d+ bytes \d+ ?", "", line)
        self._words = _WORDS.findall(line)
        self._table = table
        self._sets = sets
        self._ports = ALL_PORTS
        self._certain = True
        self._never = False
        self._routine = False
        self.results: list[FilterRule] = []

    def read(self) -> None:
        """Fill `results`: one rule, or one per entry of a verdict map, or none where no verdict stands."""
        words = self._words
        at = 0
        while at < len(words):
            word = words[at]
            after = words[at + 1 : at + 4]
            if word in _VERDICTS:
                self._result(word, after[0] if after and word in {"jump", "goto"} else None, self._ports)
                return
            at += self._condition(word, [*after, "", "", ""][:3])

    def _condition(self, word: str, after: list[str]) -> int:
        """Weigh what stands at `word`; how many words it takes."""
        if word in {"iif", "iifname", "oif", "oifname"}:
            return 1 + self._interface(after)
        if word == "ct" and after[0] == "state":
            return 2 + self._state(after[1:])
        if (word, after[0]) in {("meta", "l4proto"), ("ip", "protocol"), ("ip6", "nexthdr")}:
            return 2 + self._protocol(after[1:])
        if word == "meta" and after[0] == "nfproto":
            self._never |= after[1] == "ipv6"
            return 3
        if word in {"tcp", "th"} and after[0] == "dport":
            return 2 + self._dport(after[1:])
        if word == "tcp" and after[0] == "flags":
            return 2 + self._flags()
        if word == "counter":
            return 5 if after[0] == "packets" else 1
        if word in {"comment", "log", "prefix", "level", "group"}:
            return 1 if word == "log" else 2
        if word in _OTHER_PROTOCOLS:
            self._never = True
            return 2
        if word == "vmap":
            self._map(after[0], None)
            return 2
        if word == "#":  # a handle, or what nft could not print
            self._certain &= after[0] == "handle"
            return len(self._words)
        self._certain = False
        return 1

    def _interface(self, after: list[str]) -> int:
        negated = after[0] == "!="
        name = after[1 if negated else 0].strip('"')
        if name == "vmap":
            return 0
        # A rule for one real interface is taken as one for all: connections do come in there.
        if name == "lo" and not negated:
            self._never = self._routine = True
        return 2 if negated else 1

    def _state(self, after: list[str]) -> int:
        if after[0] == "vmap":
            self._map(after[1], "new")
            return 2
        negated = after[0] == "!="
        states = set(re.findall(r"\w+", after[1 if negated else 0]))
        if ("new" in states) == negated:
            self._never = self._routine = True
        return 2 if negated else 1

    def _protocol(self, after: list[str]) -> int:
        negated = after[0] == "!="
        names = set(re.findall(r"[\w-]+", after[1 if negated else 0]))
        self._never |= ("tcp" in names or "6" in names) == negated
        return 2 if negated else 1

    def _dport(self, after: list[str]) -> int:
        if after[0] == "vmap":
            for entry in after[1].strip("{} ").split(","):
                port, _, verdict = entry.partition(":")
                self._result(verdict.strip(), None, self._ports & _ports(port, self._sets))
            self._never = True  # the rest of the line has no verdict of its own
            return 2
        negated = after[0] == "!="
        bits = _ports(after[1 if negated else 0], self._sets)
        if not bits:
            self._certain = False  # a set that we could not read
        else:
            self._ports &= ~bits & ALL_PORTS if negated else bits
        return 2 if negated else 1

    def _flags(self) -> int:
        """`tcp flags syn / fin,syn,rst,ack` and the like: a SYN, or what is none."""
        rest = self._line.partition("tcp flags ")[2]
        text = re.split(r" (?:tcp|ct|ip|meta|limit|counter|log|jump|goto|accept|drop|reject|return)\b", rest)[0]
        wanted = text.partition("/")[0] if "/" in text else text.partition("==")[2] or text
        if "!=" in text or "syn" not in wanted:
            self._never = self._routine = True
        return len(_WORDS.findall(text))

    def _map(self, entries: str, wanted: str | None) -> None:
        """A verdict map: the entry that concerns us, or all of them, uncertain."""
        for entry in entries.strip("{} ").split(","):
            key, _, verdict = entry.rpartition(" : ")
            words = verdict.split()
            if not words or (wanted is not None and wanted not in re.findall(r"\w+", key)):
                continue
            if wanted is None:
                self._certain = False
            if key.strip(' "') != "lo":
                self._result(words[0], words[1] if len(words) > 1 else None, self._ports)

    def _result(self, verdict: str, target: str | None, ports: int) -> None:
        if verdict not in _VERDICTS:
            return
        self.results.append(
            FilterRule(
                text=self._line,
                verdict=verdict,
                target=f"{self._table} {target}" if target else None,
                ports=ports,
                certain=self._certain,
                never=self._never,
                routine=self._routine,
            )
        )


def _ports(text: str, sets: Sets) -> int:
    """The ports of "22", "{ 22, 80-90 }", "@name" or a service's name; 0 where it is none of these."""
    bits = 0
    for part in text.strip("{} ").split(","):
        word = part.strip()
        if word.startswith("@"):
            bits |= sets.get(word[1:], 0)
        elif match := re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", word):
            bits |= port_bits(int(match[1]), int(match[2] or match[1]))
        elif word in _SERVICES:
            bits |= 1 << _SERVICES[word]
    return bits


_SERVICES = {
    "ssh": 22,
    "http": 80,
    "https": 443,
    "domain": 53,
    "ftp": 21,
    "telnet": 23,
    "smtp": 25,
    "sunrpc": 111,
    "nfs": 2049,
}
