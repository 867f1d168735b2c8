"""Values put into a rule's sentences, also where one of them is not known.

What a sentence says of a value that may be unknown stands in double square brackets, and this is the whole grammar:

    raised {error}[[ at {site}]]             said where all values in it are known
    listen on [[port {port}|its port]]       the first alternative of which all values are known
    [[ (pid {pid} on {host})| (pid {pid})]]  nothing where there is no such alternative
    {who} {who:was/were} stopped             words for one, and for several, of what the value names

All else is said in any case, so a value there must be known; the tests find a rule that breaks this.  A command has a
word in capitals for what is not known (`nc -vz HOST PORT`), as people name what is to be filled in.
"""

import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

from allready.model.finding import Phrase, Remedy, RemedyStep

UNKNOWN = "?"
"""How a value that is not known stands in data: those of phrases and findings.  While they are made it is None."""
MAX_PHRASE_DEPTH = 4
"""Phrases inside of phrases; ours have two."""
WHO = "who"
"""The placeholder for ranks, hosts or processes: a sentence says something of one that is not known, too."""
UNNAMED_PROCESS = "a process"
"""What it says of one in English."""

_CAPITALS = {"peer": "ADDRESS", "address": "ADDRESS", "remote": "ADDRESS", "ranks": "RANK", "nodes": "NODE"}
"""What a command has for what is not known, where the placeholder's own name says it badly."""
_SAFE = "_@%+=:,./[]~^-"
"""What a shell takes as part of a plain word, beside letters and digits."""
_ESCAPED = str.maketrans({"{": "{{", "}": "}}"})
_MAX_KEPT = 2048
"""Templates that were taken apart: those of all rules and phrases are more, those of one report far fewer."""


class Several(str):
    """A value that names more than one rank or node: known while a rule's sentences are filled.  Data, such as the
    values of a phrase or of a finding, has the plain text, so that neither forms of phrases nor other languages choose
    words by it."""

    __slots__ = ()


class Named(str):
    """A value that names something with a word of ours, in English; `phrase` says it in other languages."""

    __slots__ = ("phrase",)
    phrase: Phrase


class SeveralNamed(Named, Several):
    """The same, of more than one."""

    __slots__ = ()


def named_by(phrase: Phrase, *, is_several: bool = False) -> Named:
    """The name that a phrase says."""
    name = (SeveralNamed if is_several else Named)(in_english(phrase))
    name.phrase = phrase
    return name


def joined(names: Sequence[str], separator: str = ", ") -> str:
    """The names in one text, which is `Several` where they are."""
    if any(isinstance(name, Named) for name in names):
        return _joined_phrase(names, separator)
    text = separator.join(names)
    return Several(text) if len(names) > 1 else text


def _joined_phrase(names: Sequence[str], separator: str) -> str:
    if len(names) == 1:
        return names[0]
    parts = {f"n{at}": name.phrase if isinstance(name, Named) else name for at, name in enumerate(names)}
    return named_by(Phrase(separator.join(f"{{{key}}}" for key in parts), parts), is_several=True)


@lru_cache(_MAX_KEPT)
def _pieces(template: str) -> tuple[tuple[str, str | None, str, str, str], ...]:
    """Of each part of `template`: the text before a placeholder, its name, and the words for one and for several."""
    parsed = string.Formatter().parse(template)
    return tuple((text.translate(_ESCAPED), name, *(words or "").partition("/")) for text, name, words, _ in parsed)


def agreeing(template: str, values: Mapping[str, object]) -> str:
    """`template` with the words that go with how many its values name; for one where that is not known."""
    pieces: list[str] = []
    for literal, name, one, is_choice, several in _pieces(template):
        pieces.append(literal)
        if is_choice:
            pieces.append(several if isinstance(values.get(name or ""), Several) else one)
        elif name is not None:
            pieces.append(f"{{{name}}}")
    return "".join(pieces)


def phrases_of(values: Mapping[str, object]) -> dict[str, tuple[Phrase, ...]]:
    """The values that are a phrase, or several."""
    found: dict[str, tuple[Phrase, ...]] = {}
    for name, value in values.items():
        if isinstance(value, Phrase | Named):
            found[name] = (value if isinstance(value, Phrase) else value.phrase,)
        elif isinstance(value, tuple) and value and all(isinstance(part, Phrase) for part in value):
            found[name] = value
    return found


def said(form: str, **values: object) -> Phrase:
    """A value, a source or a text that `form` says, a template as of a rule's message; None is a value not known."""
    plain = {name: UNKNOWN if value is None else str(value) for name, value in values.items()}
    phrases = {name: parts[0] if len(parts) == 1 else parts for name, parts in phrases_of(values).items()}
    return Phrase(form, {**plain, **phrases})


def with_values(phrase: Phrase, change: Callable[[str], str]) -> Phrase:
    """The phrase with each of its values, also of the phrases inside, as `change` makes it."""

    def changed(value: "str | Phrase | tuple[Phrase, ...]") -> "str | Phrase | tuple[Phrase, ...]":
        if isinstance(value, str):
            return change(value)
        return with_values(value, change) if isinstance(value, Phrase) else tuple(with_values(v, change) for v in value)

    return Phrase(phrase.form, {name: changed(value) for name, value in phrase.values.items()})


class HasPhrases(Protocol):
    """A struct with texts of which some are phrases of ours, by the names of the fields that have them in English."""

    @property
    def phrases(self) -> Mapping[str, tuple[Phrase, ...]]: ...


def texts(**given: "str | Phrase | tuple[Phrase, ...]") -> dict[str, Any]:
    """The fields of such a struct: those given in English, and `phrases`."""
    return {**{name: in_english(text) for name, text in given.items()}, "phrases": phrases_of(given)}


def words_of(struct: HasPhrases, name: str) -> "str | tuple[Phrase, ...]":
    """What such a field says, to be said on in any language."""
    return struct.phrases.get(name) or getattr(struct, name) or ""


@runtime_checkable
class Templated(Protocol):
    """An error of `allready.errors` that has its message as data."""

    @property
    def template(self) -> str: ...

    @property
    def values(self) -> Mapping[str, object]: ...


def phrase_of(error: Templated) -> Phrase:
    """What an error says."""
    values = {name: getattr(value, "phrase", value) for name, value in error.values.items()}
    inner = {name: phrase_of(value) for name, value in values.items() if isinstance(value, Templated)}
    return said(error.template, **(values | inner))


def in_english(value: object) -> str:
    """A value as sentences in English, logs and JSON have it; None is one that is not known."""
    if value is None:
        return UNKNOWN
    if isinstance(value, Phrase):
        return fill(value.form, value.values)
    if isinstance(value, tuple) and value and isinstance(value[0], Phrase):
        return "; ".join(map(in_english, value))
    return str(value)


@lru_cache(_MAX_KEPT)
def placeholders(template: str) -> frozenset[str]:
    """Names in braces in `template`: of values that are put there, not of those that only choose words."""
    return frozenset(name for _, name, _, _ in string.Formatter().parse(agreeing(template, {})) if name)


def parts(template: str) -> Iterator[tuple[str, ...]]:
    """The template from left to right: what is said in any case, alone, and of each optional part its alternatives, of
    which the last is to say nothing."""
    rest = template
    while rest:
        said, is_more, rest = rest.partition("[[")
        yield (said,)
        if is_more:
            part, _, rest = rest.partition("]]")
            yield (*part.split("|"), "")


def plain(template: str) -> str:
    """`template` as it is where everything is known, of one thing, for people who read its placeholders."""
    return "".join(alternatives[0] for alternatives in parts(agreeing(template, {})))


def fill(
    template: str,
    values: Mapping[str, object],
    *,
    is_command: bool = False,
    unnamed: str = UNNAMED_PROCESS,
    unknown: str = "unknown",
) -> str:
    """`template` with `values`, and of its optional parts what all values are known for.

    `unnamed`, `unknown`: what the reader's language has for a `WHO` that is not known, and, if a rule forgot the
    brackets, for any other value.

    Raises:
        KeyError: a value is missing altogether: a mistake of the rule.
    """
    template = agreeing(template, values)
    filled = {name: in_english(value) for name, value in values.items()}
    template = chosen(template, filled)
    for name in placeholders(template):
        if filled[name] == UNKNOWN:
            instead = unnamed if name == WHO else unknown
            filled[name] = _CAPITALS.get(name, name.upper()) if is_command else instead
    return template.format_map(filled)


def chosen(template: str, values: Mapping[str, str]) -> str:
    """`template` with those of its optional parts that all values are known for, and no bracket left."""
    missing = {name for name in placeholders(template) if values[name] == UNKNOWN}
    first = (next((a for a in some if not placeholders(a) & missing), some[-1]) for some in parts(template))
    return "".join(first)


def steps_of(entry: Mapping[str, Any]) -> tuple[RemedyStep, ...]:
    """The steps that an entry of a table has: `remedy`, a plain sentence, or `remedies`, tables of one step each."""
    if "remedies" in entry:
        steps = tuple(RemedyStep(**step) for step in entry["remedies"])
        if not all(bool(step.explanation) != bool(step.shared) for step in steps):
            raise TypeError("a step has an explanation of its own or is a shared one")
        return steps
    return (RemedyStep(explanation=str(entry["remedy"]).strip()),) if entry.get("remedy") else ()


def placeholders_of(steps: Iterable[RemedyStep]) -> frozenset[str]:
    """Names in braces in any text of the steps, without those of a step that is repeated for each of some values."""
    single = (step for step in steps if not step.each)
    texts = (text for step in single for text in (step.explanation, step.command, step.where))
    return frozenset().union(*map(placeholders, texts))


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
    is_whole = step.command in {f"{{{name}}}" for name in filled}
    safe = {n: v if is_whole or _is_plain_word(v) else UNKNOWN for n, v in filled.items()}
    return Remedy(
        where=fill_place(step.where, filled) or step.elsewhere,
        command=fill(step.command, safe, is_command=True),
        explanation=fill(agreeing(step.explanation, {**values, **row}), filled),
        step=0 if step.shared else number,
        shared=step.shared,
        values={name: in_english(value) for name, value in row.items()},
    )


def _is_plain_word(value: str) -> bool:
    return not value.startswith("-") and all(letter.isalnum() or letter in _SAFE for letter in value)


def fill_place(template: str, values: Mapping[str, object]) -> str:
    """Where a step is done; empty when that is not known."""
    names = placeholders(template)
    return "" if any(values[name] == UNKNOWN for name in names) else template.format_map(values)
