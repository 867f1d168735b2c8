"""Read `nft -j list ruleset`, and `nft list ruleset` where nft was built without JSON.

Both become the same conditions and verdicts; `facts/packet_filter.py` weighs them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from allready.errors import FactUnavailable
from allready.facts.packet_filter import Condition, FilterChain, FilterRule, filter_rule

VERDICTS = frozenset({"accept", "drop", "reject", "jump", "goto", "return", "continue", "queue"})
SILENT = frozenset({"counter", "log", "comment"})  # statements that decide nothing
MAX_LINES = 100_000

_FIELDS = {
    ("meta", "iif"): "interface", ("meta", "iifname"): "interface",
    ("meta", "oif"): "interface", ("meta", "oifname"): "interface",
    ("meta", "l4proto"): "protocol", ("ip", "protocol"): "protocol", ("ip6", "nexthdr"): "protocol",
    ("meta", "nfproto"): "family", ("ct", "state"): "state", ("ct", "status"): "status", ("tcp", "flags"): "flags",
    ("fib", "daddr"): "dst_type",
    ("ip", "saddr"): "saddr", ("ip6", "saddr"): "saddr", ("ip", "daddr"): "daddr", ("ip6", "daddr"): "daddr",
    ("tcp", "dport"): "dport", ("th", "dport"): "dport", ("tcp", "sport"): "sport", ("th", "sport"): "sport",
}  # fmt: skip
"""What is compared, as nft calls it -> what `Condition` calls it."""

_OTHER_PROTOCOLS = frozenset({"udp", "udplite", "icmp", "icmpv6", "sctp", "dccp", "esp", "ah", "igmp"})

_FIB_RESULTS = frozenset({"type", "oif", "oifname", "check"})

Sets = Mapping[str, tuple[str, ...]]  # name of a set -> its elements
Verdict = tuple[str, str | None]  # with the chain that jump and goto lead to
Field = tuple[str, str]
UNNAMED = ("", "")  # what is compared is no field that has a meaning here
TOGETHER = (".", "")  # several fields are compared at once


def _condition(left: Field, op: str, values: tuple[str, ...], sets: Sets) -> Iterator[Condition]:
    """What `left` (its words, without a mask) compared with values means."""
    what = _FIELDS.get(left)
    if left[0] in _OTHER_PROTOCOLS:
        yield Condition("protocol", left[:1])
    elif what is None or op not in {"==", "!=", "in"}:
        yield Condition("")
    else:
        if left[0] == "tcp":
            yield Condition("protocol", ("tcp",))
        known = tuple(v for value in values for v in (sets.get(value[1:], ()) if value[:1] == "@" else (value,)))
        yield Condition(what, known, negated=op == "!=")


def _rules(
    text: str,
    conditions: Sequence[Condition],
    verdicts: Iterable[tuple[Sequence[Condition], Verdict]],
    *,
    table: str,
    handle: int | None,
) -> Iterator[FilterRule]:
    """One rule per verdict; of a verdict map each has a condition of its own."""
    for own, (verdict, target) in verdicts:
        yield filter_rule(
            text, verdict, [*conditions, *own], target=f"{table} {target}" if target else None, handle=handle
        )


# JSON


def parse_nft_json(listed: str, texts: Mapping[tuple[str, int], str]) -> dict[str, FilterChain]:
    """Chains by "family table chain"; what is not understood makes a rule uncertain, never wrong.

    Args:
        listed: what `nft -j list ruleset` prints.
        texts: (chain, handle) -> the rule as `nft -a list ruleset` prints it.

    Raises:
        FactUnavailable: this is not nft's JSON.
    """
    try:
        items = json.loads(listed)["nftables"]
        return _chains_of_json([item for item in items if isinstance(item, dict)], texts)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise FactUnavailable("{error}", error=f"nft -j list ruleset: {type(error).__name__}: {error}") from error


def _chains_of_json(items: Sequence[Any], texts: Mapping[tuple[str, int], str]) -> dict[str, FilterChain]:
    chains: dict[str, FilterChain] = {}
    sets: dict[str, dict[str, tuple[str, ...]]] = {}
    dormant = {f"{t['family']} {t['name']}" for item in items if (t := item.get("table")) and _is_dormant(t)}
    for item in items:
        if "set" in item:
            one = item["set"]
            sets.setdefault(f"{one['family']} {one['table']}", {})[one["name"]] = _values(one.get("elem", []))
        elif "chain" in item and f"{item['chain']['family']} {item['chain']['table']}" not in dormant:
            one = item["chain"]
            key = f"{one['family']} {one['table']} {one['name']}"
            # Chains of the types nat and route do not filter.
            hook = one.get("hook") if one.get("type") == "filter" else None
            policy = one.get("policy", "accept")
            chains[key] = FilterChain(name=key, label=key, family=one["family"], hook=hook, policy=policy)
    for item in items:
        if "rule" in item:
            one = item["rule"]
            table = f"{one['family']} {one['table']}"
            key, handle = f"{table} {one['chain']}", int(one["handle"])
            if key in chains:
                text = texts.get((key, handle), f"handle {handle}")
                chains[key].rules += _rules_of_json(one["expr"], text, sets.get(table, {}), table, handle)
    return chains


def _is_dormant(table: Mapping[str, Any]) -> bool:
    """nft 1.0.6 writes the table's name where the flag should stand."""
    flags = table.get("flags", [])
    return bool({"dormant", table["name"]} & set([flags] if isinstance(flags, str) else flags))


def _rules_of_json(
    expressions: Sequence[Mapping[str, Any]], text: str, sets: Sets, table: str, handle: int
) -> Iterator[FilterRule]:
    conditions: list[Condition] = []
    for expression in expressions:
        [(name, body)] = expression.items()
        if name in VERDICTS:
            yield from _rules(text, conditions, [((), _verdict_of_json(expression))], table=table, handle=handle)
            return
        if name == "match":
            right = _values(body["right"])
            conditions += _condition(_left_of_json(body["left"]), body.get("op", "=="), right, sets)
        elif name == "vmap":
            left = _left_of_json(body["key"])
            data = body["data"]
            entries = data["set"] if isinstance(data, dict) else []
            cases = [
                (list(_case(left, _values(key), sets)), _verdict_of_json(verdict))
                for key, verdict in entries
                if set(verdict) & VERDICTS
            ]
            yield from _rules(text, conditions, cases, table=table, handle=handle)
        elif name not in SILENT:
            conditions.append(Condition(""))


def _case(left: Field, values: tuple[str, ...], sets: Sets) -> Iterator[Condition]:
    """The condition of one entry of a verdict map."""
    yield from _condition(left, "==", values, sets)


def _verdict_of_json(expression: Mapping[str, Any]) -> Verdict:
    [(name, body)] = expression.items()
    return name, body["target"] if name in {"jump", "goto"} else None


def _left_of_json(left: Any) -> Field:
    """What is compared: `("tcp", "dport")`."""
    if not isinstance(left, dict):
        return UNNAMED
    [(kind, body)] = left.items()
    if kind == "payload" and "field" in body:
        return body["protocol"], body["field"]
    if kind == "fib" and body.get("result") == "type" and body.get("flags") in ("daddr", ["daddr"]):
        return "fib", "daddr"
    if kind in {"meta", "ct"}:
        return kind, body["key"]
    if kind == "&":  # a mask: of TCP's flags, which are compared
        return _left_of_json(body[0])
    return UNNAMED


def _values(right: Any) -> tuple[str, ...]:
    """All values of the right side of a comparison, ranges and networks as nft prints them."""
    if isinstance(right, list):
        return tuple(v for item in right for v in _values(item))
    if not isinstance(right, dict):
        return (str(right),)
    [(kind, body)] = [(k, b) for k, b in right.items() if k in {"set", "range", "prefix", "elem", "|", "concat"}][:1]
    if kind == "range":
        return (f"{body[0]}-{body[1]}",)
    if kind == "prefix":
        return (f"{body['addr']}/{body['len']}",)
    if kind == "concat":
        return (" . ".join(map(str, body)),)
    return _values(body["val"] if kind == "elem" else body)


# Text


def rule_texts(listed: str) -> dict[tuple[str, int], str]:
    """(chain, handle) -> each rule of `nft -a list ruleset`, without counters."""
    found: dict[tuple[str, int], str] = {}
    for kind, key, lines in _sections(listed):
        for line in lines if kind == "chain" else ():
            text, handle = _text_and_handle(line)
            if handle is not None:
                found[key, handle] = text
    return found


def _text_and_handle(line: str) -> tuple[str, int | None]:
    """A rule without its counters and its number."""
    text, mark, number = line.rpartition(" # handle ")
    is_numbered = bool(mark) and number.isdecimal()
    text = re.sub(r"counter packets \d+ bytes \d+ ?", "", text if is_numbered else line)
    return text, int(number) if is_numbered else None


def parse_nft(listed: str) -> dict[str, FilterChain]:
    """Chains by "family table chain" of `nft list ruleset`, as `parse_nft_json` gives them."""
    sections = list(_sections(listed))
    sets: dict[str, dict[str, tuple[str, ...]]] = {}
    for kind, key, lines in sections:
        if kind == "set":
            elements = next((line.partition("=")[2] for line in lines if line.startswith("elements =")), "")
            table, _, name = key.rpartition(" ")
            sets.setdefault(table, {})[name] = _list(elements)
    chains: dict[str, FilterChain] = {}
    for kind, key, lines in sections:
        if kind != "chain" or key.startswith("dormant "):
            continue
        chain = FilterChain(name=key, label=key, family=key.partition(" ")[0])
        table = key.rpartition(" ")[0]
        for line in lines:
            head = re.match(r"type (\w+) hook (\w+)(?: devices? .*?)? priority [^;]+;(?: policy (\w+);)?", line)
            if head:
                chain.hook = head[2] if head[1] == "filter" else None
                chain.policy = head[3] or "accept"
            elif line and line[0] != "#":
                chain.rules += _rules_of_text(line, sets.get(table, {}), table)
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
            bare = re.sub(r'"[^"]*"', "", whole)
            if bare.count("{") <= bare.count("}"):
                lines.append(whole)
                whole = ""


def _list(text: str) -> tuple[str, ...]:
    """`{ 22, 80-90 }`, `established,related` or one word."""
    return tuple(part.strip().strip('"') for part in text.strip("{} ").split(",") if part.strip())


def _rules_of_text(line: str, sets: Sets, table: str) -> Iterator[FilterRule]:
    """The statements of one line, from left to right; none where no verdict stands."""
    text, handle = _text_and_handle(line)
    words = re.findall(r'"[^"]*"|\{[^{}]*\}|[^\s{}"]+', text)
    conditions: list[Condition] = []
    while words:
        if words[0] in VERDICTS:
            target = words[1] if words[0] in {"jump", "goto"} and len(words) > 1 else None
            yield from _rules(text, conditions, [((), (words[0], target))], table=table, handle=handle)
            return
        if words[0] in SILENT:
            del words[: 1 if words[0] != "comment" else 2]
            while words and words[0] in {"prefix", "level", "group"}:  # of a log
                del words[:2]
            continue
        left = _left_of_text(words)
        while words[:1] == ["."]:  # several together are compared with pairs
            del words[:1]
            if words and _left_of_text(words) == UNNAMED:
                del words[:1]
            left = TOGETHER
        if left == UNNAMED:
            conditions.append(Condition(""))
            del words[:1]
        elif words[:1] == ["vmap"] and len(words) > 1:
            cases = [
                (list(_case(left, _list(key), sets)), (verdict.split()[0], (verdict.split()[1:] or [None])[0]))
                for key, _, verdict in (entry.rpartition(" : ") for entry in words[1].strip("{} ").split(","))
                if verdict.split()[:1] and verdict.split()[0] in VERDICTS
            ]
            yield from _rules(text, conditions, cases, table=table, handle=handle)
            del words[:2]
        else:
            op = words.pop(0) if words[:1] and words[0] in {"!=", "==", "<", ">", "<=", ">="} else "=="
            conditions += _condition(left, op, _list(words.pop(0)) if words else (), sets)


def _left_of_text(words: list[str]) -> Field:
    """Takes what is compared from the front of `words`, with a mask of flags; nothing where it is nothing known."""
    if words[0] == "fib":  # `fib daddr . iif type`: what the routing table says of an address, here at an interface
        end = next((n for n, word in enumerate(words) if word in _FIB_RESULTS and words[n - 1] not in {"fib", "."}), 0)
        left = ("fib", " ".join(words[1:end])) if words[end : end + 1] == ["type"] else TOGETHER
        del words[: end + 1]
        return left
    if words[0] in {"iif", "iifname", "oif", "oifname"}:
        return "meta", words.pop(0)
    if words[0] not in {"meta", "ct", "ip", "ip6", "tcp", "th"} | _OTHER_PROTOCOLS or len(words) < 2:
        return UNNAMED
    left = (words.pop(0), words.pop(0))
    if left == ("tcp", "flags"):
        # `tcp flags syn / fin,syn,rst,ack` and `tcp flags & (fin | syn) == syn`: which flags must be set.
        if words[1:2] == ["/"]:
            del words[1:3]
        elif words[:1] == ["&"]:
            del words[: next((n for n, word in enumerate(words) if word in {"==", "!="}), len(words))]
    return left
