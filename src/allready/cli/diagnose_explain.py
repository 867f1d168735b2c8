"""`allready diagnose --explain-line`: what one pasted line means, or several together."""

import argparse
import itertools
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from allready.cli.main import EXIT_HEALTHY, EXIT_UNCHECKED
from allready.cli.output import deliver_json
from allready.evidence.clock import Clock
from allready.evidence.prefix import Prefix, parse
from allready.judging import transfer
from allready.judging.engine import finding_of
from allready.judging.loading import load
from allready.judging.registry import Rule
from allready.judging.values import process_row
from allready.model import HOSTS, PROCESSES, Confidence, Finding, Hit, ProcessStack, clock_time
from allready.model.fill import in_english, placeholders, placeholders_of
from allready.names import TRACEBACK_FRAME
from allready.patterns import compiled
from allready.signatures import Signature, of_line
from allready.signatures.conditions import hint_of
from allready.text.catalog import choose_language, say, say_phrase
from allready.text.ui import ui
from allready.text.usage import usage_text

SCHEMA = "allready.explain/1"
MAX_LINES = 1_000
MAX_BYTES = 1 << 20

_WATCHDOG = (
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,18}), ?)?OpType=(?P<op>\w{1,60})(?:, ?NumelIn=(?P<numel_in>\d{1,18}))?"
    r"(?:, ?NumelOut=(?P<numel_out>\d{1,18}))?(?:, ?TensorShape=\[(?P<shape>[\d, ]{0,200})\])?"
    r"(?:, ?Timeout\(ms\)=(?P<timeout_ms>\d{1,15}))?\)(?: ran for (?P<ran_ms>\d{1,15}) milliseconds)?"
)


def explain(args: argparse.Namespace) -> int:
    """Print what the lines mean together, and each of them.

    Exit code 0 when they explain a fault together, or every line that is not blank is known; else 3.
    """
    from allready.redaction import masked_all
    from allready.report.safe import plain

    language = choose_language(args.lang)
    text = _lines(args.explain_line)
    lines = [block for block in blocks_of(text) if any(line.strip() for line in block)]
    if not lines:
        sys.stderr.write(f"allready diagnose: {usage_text('--explain-line was given no text, or only blanks')}\n")
    explained = [masked_all(_meaning_of_block(block)) for block in lines]
    verdict = verdict_of(text)
    stacks = () if verdict is not None else tuple(masked_all(stacks_of(text)))
    if args.json:
        entries: dict[str, Any] = {"schema": SCHEMA, "lines": [as_json(entry) for entry in explained]}
        if stacks:
            entries["stacks"] = [{"activity": one.activity, "site": str(one.site or "")} for one in stacks]
        deliver_json(args.json, entries if verdict is None else entries | {"together": _as_plain(verdict)})
    if args.json != "-":
        blocks = [] if verdict is None else [list(_rows_of_verdict(verdict, language))]
        blocks += [list(_rows_of_stacks(stacks, language))] if stacks else []
        blocks += [list(rows(entry, language)) for entry in explained if not blocks or entry["known"]]
        sys.stdout.write("\n\n".join("\n".join(map(plain, some)) for some in blocks) + "\n" * bool(blocks))
    is_known = verdict is not None or bool(stacks) or (explained and all(entry["known"] for entry in explained))
    return EXIT_HEALTHY if is_known else EXIT_UNCHECKED


def verdict_of(lines: Sequence[str]) -> Finding | None:
    """What several lines mean together, read like a log: the finding that is the verdict; None of one line."""
    if sum(bool(line.strip()) for line in lines) < 2:
        return None
    from allready.cli.diagnose_judge import Question, judge_readings
    from allready.evidence.log import read_lines
    from allready.redaction import masked_all

    now = datetime.now(UTC)
    report = judge_readings([read_lines(lines, mtime_s=now.timestamp())], Question(), started=now)[0]
    return None if report.verdict is None else masked_all(report.findings[0])


def stacks_of(lines: Sequence[str]) -> Iterator[ProcessStack]:
    """The stacks that the lines are, with what each of them does; none where they are something else."""
    from allready.evidence.stacks.meaning import describe
    from allready.evidence.stacks.read import is_stacks, read_stacks

    text = "\n".join(lines).encode()
    for stack in read_stacks(text, "-").stacks if is_stacks(text) else ():
        activity = describe(stack)
        yield replace(stack, activity=activity.kind, site=activity.site)


def _rows_of_stacks(stacks: Sequence[ProcessStack], language: str) -> Iterator[str]:
    from allready.report.run_words import activity

    for one in stacks:
        site = f" ({one.site})" if one.site else ""
        colon = "：" if language == "zh" else ": "
        yield f"{ui('diagnose.explain_stack', language)}{colon}{activity(one.activity, language)}{site}"


def _as_plain(finding: Finding) -> dict[str, Any]:
    known = msgspec.to_builtins(finding)
    names = ("code", "severity", "fault_class", "confidence", "culprits", "title", "message", "remedy", "remedies")
    return {name: known[name] for name in names}


def _rows_of_verdict(finding: Finding, language: str) -> Iterator[str]:
    colon = "：" if language == "zh" else ": "

    def t(name: str) -> str:
        return ui(f"diagnose.{name}", language)

    yield f"{t('explain_together')}{colon}{finding.code}  {say(finding, 'title', language)}"
    yield f"  {t('explain_class')}{colon}{finding.fault_class}"
    yield f"  {t('explain_meaning')}{colon}{say(finding, 'message', language)}"
    yield f"  {t('explain_remedy')}{colon}{say(finding, 'remedy', language)}"


def _lines(text: str) -> list[str]:
    """The lines, out of what a collector put around them and in the order in which they were written."""
    from allready.evidence.inputs.envelopes import opened_text

    if text == "-":
        text = sys.stdin.buffer.read(MAX_BYTES).decode("utf-8", "replace")
    text = text.replace("\r\n", "\n")
    text = _unquoted(text)
    if "\n" in text.strip() or text.lstrip().startswith(("{", "[")):
        text = opened_text(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
    return text.split("\n")[:MAX_LINES]


_QUOTED = r"(?m)^[ \t]{0,3}(?:> ?){1,8}(?=.*$)"
_FENCE = r"[ \t]{0,8}(?:`{3,}|~{3,})[ \t]{0,4}[\w+.-]{0,30}[ \t]{0,4}"


def _unquoted(text: str) -> str:
    """Lines out of a mail's or a comment's marks: `> ` before lines that follow each other, fences, an indentation that
    all of them have."""
    found: list[str] = []
    for is_quoted, some in itertools.groupby(text.split("\n"), lambda line: compiled(_QUOTED).match(line) is not None):
        lines: Sequence[str] = list(some)
        if is_quoted and len(lines) > 1:  # loguru marks one frame of a traceback so
            lines = _dedented([compiled(_QUOTED).sub("", line) for line in lines])
        found += lines
    return "\n".join(_dedented([line for line in found if compiled(_FENCE).fullmatch(line) is None]))


def _dedented(lines: Sequence[str]) -> Sequence[str]:
    """Without the indentation of code in Markdown, where all lines have it and it is not a frame's: of a traceback that
    is cut, every line may be indented."""
    margins = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    margin = min(margins, default=0)
    if len(margins) < 2 or margin < _CODE or any(line.startswith(TRACEBACK_FRAME, margin) for line in lines):
        return lines
    return [line[margin:] for line in lines]


_CODE = 4
"""Columns by which Markdown tells code from text."""
_OPENS = r"(?:.{0,300}\] ?)?(?:Traceback \(most recent call last\)|terminate called after throwing)"
_JOINS = r"(?:During handling of the above|The above exception was the direct cause)"
_PART = (
    r"(?:\[rank(?:: ?)?\d+\]:? ?|\d+: ?)?(?:\s{2,}\S|\s*File \"|\s*what\(\):|\s*#\d+ |frame #\d+|\s*\^+\s*$|"
    r"Exception raised from )"
)
"""Lines that go on with what the line before began: frames, code, a `what():`, the marks below code."""

_DRIVER = "NVRM: "


def blocks_of(lines: Sequence[str]) -> list[list[str]]:
    """The lines, those together that are one message: a traceback with its error, an exception of C++ with its stack.

    An ordinary line is a block of its own.
    """
    blocks: list[list[str]] = []
    is_open = False  # a traceback whose error has not come
    for line in lines:
        text = parse(line, Clock(time.time())).rest
        joins = compiled(_JOINS).match(text) is not None
        opens = compiled(_OPENS).match(text) is not None
        is_part = compiled(_PART).match(line) is not None or compiled(_PART).match(text) is not None
        follows = bool(blocks) and (
            is_open or is_part or joins or (opens and compiled(_JOINS).match(blocks[-1][-1]) is not None)
        )
        if (follows and _has_block(blocks[-1])) or (
            blocks and (_completes(blocks[-1], line) or _reports(blocks[-1], text))
        ):
            blocks[-1].append(line)
        else:
            blocks.append([line])
        is_open = opens or joins or (is_open and (is_part or not line.strip()))
    return blocks


def _has_block(block: Sequence[str]) -> bool:
    """Whether lines may belong to it: it was opened, or it is a stack already."""
    return any(compiled(_OPENS).search(line) or compiled(_PART).match(line) for line in block) or bool(
        list(of_line(block[0].strip()))
    )


def _reports(block: Sequence[str], text: str) -> bool:
    """Whether a driver's line goes on with its report: it says nothing known, or the same of the same device."""
    if not text.startswith(_DRIVER) or _DRIVER not in block[-1]:
        return False
    before = [one for line in block for one in _known_of(line)]
    return not (mine := _known_of(text)) or not before or before[0] == mine[0]


def _known_of(line: str) -> list[tuple[str | None, str]]:
    """What a driver's line is known to say, and of which device, its function left out."""
    return [
        (signature.code, (match.groupdict().get("pci") or "").split(".")[0])
        for signature, match in of_line(parse(line, Clock(time.time())).rest)
    ]


def _completes(block: Sequence[str], line: str) -> bool:
    """Whether a message was broken in two: neither half is known, and both together are."""
    if len(block) > 1 or not line.strip() or not block[0].strip() or _is_known(block[0]) or _is_known(line):
        return False
    return _is_known(_joined((*block, line)))


def _is_known(line: str) -> bool:
    return bool(list(of_line(parse(line, Clock(time.time())).rest)) or list(of_line(line)))


def _joined(block: Sequence[str]) -> str:
    return " ".join(line.strip() for line in block)


def _meaning_of_block(block: Sequence[str]) -> dict[str, Any]:
    """What the first of its lines that is known means; the lines stand together."""
    whole = "\n".join(block)
    entries = [meaning_of(line) for line in block if line.strip()]
    known = next((entry for entry in entries if entry["known"]), None)
    if known is None and len(block) > 1:  # a message that was broken in two
        whole_entry = meaning_of(_joined(block))
        known = whole_entry if whole_entry["known"] else None
    return {**(known or entries[0]), "line": whole}


def meaning_of(line: str) -> dict[str, Any]:
    """Everything known of one line, for `as_json` and `rows`.

    Keys: line, known, writer (of the prefix), time, meanings (the one that is meant first), transfer.
    """
    prefix = parse(line, Clock(time.time()))
    front = line[: len(line) - len(prefix.rest)] if line.endswith(prefix.rest) else ""
    found = list(of_line(prefix.rest, front)) or list(of_line(line))
    meanings = [_meaning(signature, match.groupdict(), prefix) for signature, match in found[:3]]
    sums = arithmetic_of(prefix.rest, prefix.time_s)
    return {
        "line": line,
        "known": bool(found),
        "writer": {key: value for key, value in _writer(prefix).items() if value is not None},
        "time": clock_time(prefix.time_s),
        "meanings": meanings,
        "arithmetic": sums,
    }


def _writer(prefix: Prefix) -> dict[str, Any]:
    return {name: getattr(prefix, name) for name in ("host", "pid", "rank", "local_rank", "task", "node", "cuda_dev")}


def _meaning(signature: Signature, groups: Mapping[str, str | None], prefix: Prefix) -> dict[str, Any]:
    values = {name: value for name, value in groups.items() if value}
    finding = None if signature.code is None else _finding(signature, load()[signature.code], values, prefix)
    variables = [] if finding is None else list(signature.variables)
    return {
        "signature": signature.id, "role": str(signature.role), "values": values, "variables": variables,
        "finding": finding,
    }  # fmt: skip


def _finding(signature: Signature, rule: Rule, values: Mapping[str, str], prefix: Prefix) -> Finding:
    names = placeholders(rule.message) | placeholders_of(rule.steps)
    who = f"rank {prefix.rank}" if prefix.rank is not None else prefix.host or None
    filled = dict.fromkeys(names) | {"who": who} | hint_of(signature.id, prefix.rest) | dict(values)
    places = {PROCESSES: (process_row(prefix.rank, prefix.pid, prefix.host),), HOSTS: ({"on": prefix.host or None},)}
    return finding_of(rule, Hit(values={**filled, **places}, confidence=Confidence.POSSIBLE))


def as_json(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The same as plain values; what a finding says stands beside its signature."""
    meanings = []
    for meaning in entry["meanings"]:
        flat = {key: value for key, value in meaning.items() if key not in {"finding", "variables"}}
        if (finding := meaning["finding"]) is not None:
            known = msgspec.to_builtins(finding)
            keys = ("code", "severity", "fault_class", "title", "message", "remedy", "remedies")
            flat |= {key: known[key] for key in keys} | {"variables": meaning["variables"], "fill": known["values"]}
        meanings.append(flat)
    return {**entry, "meanings": meanings}


def arithmetic_of(text: str, time_s: float | None) -> dict[str, Any]:
    """The numbers behind a watchdog's record; empty for other lines.

    size_bytes: smallest and largest (2 and 4 bytes an element); transfer_s: at 1 and at 300 GB/s, of the largest.
    """
    match = compiled(_WATCHDOG).search(text)
    if match is None:
        return {}
    found: dict[str, Any] = {"operation": match["op"].lower().lstrip("_")}
    if match["seq"]:
        found["seq"] = int(match["seq"])
    elements = _elements(match)
    timeout_s = int(match["timeout_ms"]) / 1000 if match["timeout_ms"] else None
    waited_s = int(match["ran_ms"]) / 1000 if match["ran_ms"] else timeout_s
    if elements:
        low, high = transfer.size_range(elements)
        found |= {
            "elements": elements,
            "size_bytes": [low, high],
            "transfer_s": [
                transfer.transfer_time_s(high, transfer.SLOW_LINK_GB_PER_S),
                transfer.transfer_time_s(high, transfer.NVLINK_GB_PER_S),
            ],
        }
        if waited_s:
            found["cannot_be_transfer"] = transfer.is_never_transfer(high, waited_s)
    if waited_s is not None:
        found["waited_s"] = waited_s
    if timeout_s is not None:
        default = transfer.default_timeout_of(timeout_s, "nccl")
        found |= {"timeout_s": timeout_s, "timeout_is": None if default is None else in_english(default)}
    if time_s is not None and waited_s is not None:
        found["onset"] = clock_time(transfer.onset_s(time_s, waited_s))
    return found


def _elements(match: re.Match[str]) -> int | None:
    """The larger side: of a gather the output moves, of a scatter the input."""
    sides = [int(match[name]) for name in ("numel_in", "numel_out") if match[name]]
    if sides:
        return max(sides)
    sizes = [int(part) for part in re.findall(r"\d{1,18}", match["shape"] or "")]
    product = 1
    for size in sizes:
        product *= size
    return product if sizes else None


def rows(entry: Mapping[str, Any], language: str) -> Iterator[str]:
    """Lines for people."""
    colon = "：" if language == "zh" else ": "

    def t(name: str, **values: object) -> str:
        return ui(f"diagnose.{name}", language, **values)

    first, *others = entry["line"].strip()[:1000].split("\n")
    yield f"{t('explain_line')}{colon}{first}"
    yield from (f"    {line.strip()}" for line in others)
    writer = ", ".join(f"{name} {value}" for name, value in entry["writer"].items())
    if writer:
        yield f"  {t('explain_who')}{colon}{writer}"
    if entry["time"]:
        yield f"  {t('explain_when')}{colon}{entry['time']}"
    if not entry["known"]:
        yield f"  {t('explain_nobody')}"
    for meaning in entry["meanings"][:1]:
        yield from _rows_of_meaning(meaning, t, colon, language)
    sums = list(_rows_of_sums(entry["arithmetic"], t, language))
    if sums:
        yield f"  {t('explain_arithmetic')}{colon}{sums[0]}"
        yield from (f"    {line}" for line in sums[1:])


def _rows_of_meaning(meaning: Mapping[str, Any], t: Any, colon: str, language: str) -> Iterator[str]:
    finding: Finding | None = meaning["finding"]
    if finding is not None:
        yield f"  {finding.code}  {say(finding, 'title', language)}"
        yield f"  {t('explain_role_' + meaning['role'])}"
        yield f"  {t('explain_class')}{colon}{finding.fault_class}"
        yield f"  {t('explain_meaning')}{colon}{say(finding, 'message', language)}"
        yield f"  {t('explain_remedy')}{colon}{say(finding, 'remedy', language)}"
    else:
        yield f"  {meaning['signature']}"
        yield f"  {t('explain_record')}"
    if meaning["values"]:
        yield f"  {t('explain_values')}{colon}" + ", ".join(f"{k}={v}" for k, v in meaning["values"].items())


def _rows_of_sums(sums: Mapping[str, Any], t: Any, language: str) -> Iterator[str]:
    from allready import units

    waited = units.time(sums["waited_s"]) if "waited_s" in sums else units.UNKNOWN
    if "elements" in sums:
        low, high = sums["size_bytes"]
        yield t("arith_size", elements=f"{sums['elements']:,}", low=units.size(low), high=units.size(high))
        slow, fast = sums["transfer_s"]
        yield t("arith_time", slow=units.time(slow), fast=units.time(fast))
    if "cannot_be_transfer" in sums:
        yield t("arith_never" if sums["cannot_be_transfer"] else "arith_slow_possible", waited=waited)
    if "timeout_s" in sums:
        seconds = f"{sums['timeout_s']:g}"
        default = transfer.default_timeout_of(sums["timeout_s"], "nccl")
        if default is not None:
            yield t("arith_default", seconds=seconds, meaning=say_phrase(default, language))
        else:
            yield t("arith_set", seconds=seconds)
    if "onset" in sums:
        yield t("arith_onset", onset=sums["onset"], waited=waited)
