"""Values put into a rule's sentences, also where one of them is not known.

A command cannot be run with a question mark in it: what is unknown is left out with the brackets or the `port` that
it stands in, and in a remedy the rest is named as people name what is to be filled in (`nc -vz HOST PORT`).

A template says itself which part goes with a value: `raised {error}[[ at {site}]]`; and which words go with one rank or
with several: `{who} {who:was/were} stopped`.
"""

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allready.model.finding import Phrase, Remedy, RemedyStep

UNKNOWN = "?"
MAX_PHRASE_DEPTH = 4
"""Phrases inside of phrases; ours have two."""
NOBODY = "a process"
"""Who wrote a line when nothing tells; other languages have their own word for exactly this value."""

_PLACES = {"peer": "ADDRESS", "address": "ADDRESS", "remote": "ADDRESS", "ranks": "RANK", "nodes": "NODE"}
"""What to write for what is not known, where the placeholder's own name says it badly."""
_ADDRESSES = {"peer", "address", "remote", "host"}
_BRACKETS = re.compile(r"[ ]?([(（])([^()（）]*)([)）])")
_SUBJECT = re.compile(r"^\{who\}(?:: |：)|^on \{who\} |^\{who\} 上")
"""Where a sentence says the same without its writer."""
_CLAUSES = re.compile(r"([;；] ?)([^;；]*)")
_SHORT = re.compile(r"[,，] ?[^,，;；:：.。()（）]*\{(\w+)\}[^,，;；:：.。()（）]*")
_NUMBERED = re.compile(r"(\b(?:rank|node|process|task)|节点|进程) \{(\w+)\}")
_PORTS = (
    (re.compile(r" on port \{(\w+)\}(?!\w)"), " on its port"),
    (re.compile(r"监听端口 \{(\w+)\}"), "监听端口"),
    (re.compile(r"<\{(\w+)\}>"), ""),
    (re.compile(r" port \{(\w+)\}"), ""),
    (re.compile(r"(?<=.) ?端口 \{(\w+)\}(?: 上)?"), ""),
    (re.compile(r"(?<=the store) at \{(\w+)\}"), ""),
)
"""How an address or a port is called that is not known."""
_PLACE_OF_COMMAND = re.compile(r" (?:at|on) \{(\w+)\}(?=[;,.:]|$)")
_WITH = re.compile(r" with \{(\w+)\} \w+")
_FEW_LETTERS = 8
_PARTS = re.compile(r"([,，、;；] ?)")


_SAFE = re.compile(r"(?!-)[\w@%+=:,./\[\]~^-]*")
_WHOLE = re.compile(r"\{\w+\}")
_OPTIONAL = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_NUMBER = re.compile(r"\{(\w+):([^/{}]*)/([^/{}]*)\}")
"""Words for one and for several of what a value names."""


class Several(str):
    """A value that names more than one rank or node."""

    __slots__ = ()


def joined(names: Sequence[str], separator: str = ", ") -> str:
    """The names in one text, which is `Several` where they are."""
    text = separator.join(names)
    return Several(text) if len(names) > 1 else text


def agreeing(template: str, values: Mapping[str, object]) -> str:
    """`template` with the words that go with how many its values name; for one where that is not known."""
    return _NUMBER.sub(lambda found: found[3 if isinstance(values.get(found[1]), Several) else 2], template)


def phrases_of(values: Mapping[str, object]) -> dict[str, tuple[Phrase, ...]]:
    """The values that are a phrase, or several."""
    found: dict[str, tuple[Phrase, ...]] = {}
    for name, value in values.items():
        if isinstance(value, Phrase):
            found[name] = (value,)
        elif isinstance(value, tuple) and value and all(isinstance(part, Phrase) for part in value):
            found[name] = value
    return found


def in_english(value: object) -> str:
    """A value as sentences in English, logs and JSON have it."""
    if isinstance(value, Phrase):
        return fill(value.form, value.values)
    if isinstance(value, tuple) and value and isinstance(value[0], Phrase):
        return "; ".join(map(in_english, value))
    return str(value)


def placeholders(template: str) -> set[str]:
    """Names in braces in `template`: of values that are put there, not of those that only choose words."""
    return {name for _, name, _, _ in string.Formatter().parse(agreeing(template, {})) if name}


def plain(template: str) -> str:
    """`template` without the marks of its optional parts and the words for one, for people who read it."""
    return _OPTIONAL.sub(lambda found: found[1], agreeing(template, {}))


def fill(
    template: str,
    values: Mapping[str, object],
    *,
    is_command: bool = False,
    nowhere: str = "an unknown address",
    nobody: str = NOBODY,
    someone: str = "an unknown {kind}",
    nothing: str = "(unknown {name})",
) -> str:
    """`template` with `values`, without the parts that nothing is known for.

    is_command: for a shell, so that no question mark may stay.
    `nowhere`, `nobody`, `someone`, `nothing`: how a sentence calls an address, who wrote a line, a rank or node, and
    anything else when that is not known.  No sentence has a question mark in its place.

    Raises:
        KeyError: a value is missing altogether: a mistake of the rule.
    """
    template = agreeing(template, values)
    filled = {name: in_english(value) for name, value in values.items()}
    if filled.get("who") == NOBODY:
        template = _SUBJECT.sub("", template)
        filled["who"] = nobody
    unknown = {name for name in placeholders(template) if filled[name] == UNKNOWN}
    template = _OPTIONAL.sub(lambda found: "" if placeholders(found[1]) & unknown else found[1], template)
    unknown &= placeholders(template)
    if not unknown:
        return template.format_map(filled)
    template = _BRACKETS.sub(lambda found: _known_part(found, unknown), template)
    for pattern, instead in (*_PORTS, (_PLACE_OF_COMMAND, "")) if is_command else _PORTS:
        template = _replaced(pattern, instead, template, unknown)
    numbered = {name for _, name in _NUMBERED.findall(template)} & unknown
    if is_command:
        filled |= {name: "N" if name in numbered else _PLACES.get(name, name.upper()) for name in unknown}
    else:
        template = _without_parts(template, unknown)
        template = _NUMBERED.sub(lambda at: someone.format(kind=at[1]) if at[2] in unknown else at[0], template)
        filled |= {name: nothing.format(name=name.replace("_", " ")) for name in unknown - _ADDRESSES}
        filled |= dict.fromkeys(unknown & _ADDRESSES, nowhere)
    return template.format_map(filled)


def steps_of(entry: Mapping[str, Any]) -> tuple[RemedyStep, ...]:
    """The steps that an entry of a table has: `remedy`, a plain sentence, or `remedies`, tables of one step each."""
    if "remedies" in entry:
        steps = tuple(RemedyStep(**step) for step in entry["remedies"])
        if not all(bool(step.explanation) != bool(step.shared) for step in steps):
            raise TypeError("a step has an explanation of its own or is a shared one")
        return steps
    return (RemedyStep(explanation=str(entry["remedy"]).strip()),) if entry.get("remedy") else ()


def placeholders_of(steps: Iterable[RemedyStep]) -> set[str]:
    """Names in braces in any text of the steps, without those of a step that is repeated for each of some values."""
    single = (step for step in steps if not step.each)
    texts = (text for step in single for text in (step.explanation, step.command, step.where))
    return set().union(*map(placeholders, texts))


def fill_steps(steps: Sequence[RemedyStep], values: Mapping[str, object]) -> tuple[Remedy, ...]:
    """The steps of a remedy with `values`, without those whose command or place has an empty value.

    A place of which a value is not known is left out.  In a command what is not known stands as a word in capitals, and
    so does a value that a shell would not take as one plain word: many come from other machines and logs.  A command
    that is one placeholder was made whole by the rule, and stands as it is.
    """
    found: list[Remedy] = []
    number = 0
    for step in steps:
        rows = values[step.each] if step.each else ({},)
        assert isinstance(rows, Sequence)
        found += [made for row in rows if (made := _filled(step, number, values, row)) is not None]
        number += not step.shared
    return tuple(found)


def _filled(step: RemedyStep, number: int, values: Mapping[str, object], row: Mapping[str, object]) -> Remedy | None:
    filled = {name: in_english(value) for name, value in (*values.items(), *row.items())}
    if step.shared:  # its command has places for what some rules know
        filled = dict.fromkeys(placeholders(step.command), UNKNOWN) | filled
    if not all(filled[name] for name in placeholders(step.command) | placeholders(step.where)):
        return None
    is_whole = _WHOLE.fullmatch(step.command)
    safe = {n: v if is_whole or _SAFE.fullmatch(v) else UNKNOWN for n, v in filled.items()}
    return Remedy(
        where=fill_place(step.where, filled) or step.elsewhere,
        command=fill(step.command, safe, is_command=True),
        explanation=fill(agreeing(step.explanation, values), filled, is_command=True),
        step=0 if step.shared else number,
        shared=step.shared,
        values={name: str(value) for name, value in row.items()},
    )


def fill_place(template: str, values: Mapping[str, object]) -> str:
    """Where a step is done; empty when that is not known."""
    names = placeholders(template)
    return "" if any(str(values[name]) == UNKNOWN for name in names) else template.format_map(values)


def _replaced(pattern: re.Pattern[str], instead: str, template: str, unknown: set[str]) -> str:
    """What matches and names something unknown, in other words."""
    return pattern.sub(lambda found: instead if found[1] in unknown else found[0], template)


def _without_parts(template: str, unknown: set[str]) -> str:
    """A sentence without its later clauses of which no value is known, and without short ones (`, {free} free`)."""

    def clause(found: re.Match[str]) -> str:
        names = set(re.findall(r"\{(\w+)\}", found[2]))
        is_whole = all(found[2].count(a) == found[2].count(b) for a, b in ("()", "（）"))
        return "" if names and names <= unknown and is_whole else found[0]

    def short(found: re.Match[str]) -> str:
        names = set(re.findall(r"\{(\w+)\}", found[0]))
        letters = re.sub(r"\{\w+\}|[\s,，]", "", found[0])
        return "" if names <= unknown and len(letters) <= _FEW_LETTERS else found[0]

    template = _SHORT.sub(short, _CLAUSES.sub(clause, template))
    return _replaced(_WITH, "", template, unknown)


def _known_part(found: re.Match[str], unknown: set[str]) -> str:
    """Brackets with what is known of their content; nothing when that is nothing."""
    pieces = _PARTS.split(found[2])
    parts, between = pieces[::2], ["", *pieces[1::2]]
    kept = [(m, p) for m, p in zip(between, parts, strict=True) if not set(re.findall(r"\{(\w+)\}", p)) & unknown]
    if len(kept) == len(parts):
        return found[0]
    inside = "".join((mark if n else "") + part for n, (mark, part) in enumerate(kept))
    return found[0][: found[0].index(found[1]) + 1] + inside + found[3] if inside.strip() else ""
