"""Splits, values and commands written short enough for one sentence, however many nodes differ."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping

from allready.judging.majority import Split
from allready.judging.stated import Text, said
from allready.judging.values import MAX_EVIDENCE, NodeCommand, seen
from allready.model import Culprits, Hit, Phrase, Severity, ranges, runs_of
from allready.model.fill import joined, named_by
from allready.names import REDACTED

Without = Callable[[str], Phrase]

MAX_GROUPS = 4
MAX_CHARS = 60
MAX_SPANS = 6
MAX_TYPED = 200


def unset(members: str) -> Phrase:
    """Members without a value, of a variable."""
    return said("(unset) [{members}]", members=members)


def missing(members: str) -> Phrase:
    """The same of something that a node may lack."""
    return said("(missing) [{members}]", members=members)


def not_set(members: str) -> Phrase:
    """The same of a setting that a log may not show."""
    return said("(not set) [{members}]", members=members)


def brief(
    split: Split, *, most_groups: int = MAX_GROUPS, most_chars: int = MAX_CHARS, without: Without = missing
) -> str:
    """`9000 [0,1,3], 1500 [2]`; of many groups only the largest, long values cut where they differ.

    without: says which members have no value (None).
    """
    shown = split.groups[:most_groups]
    values = cut([value or "" for value, _ in shown], most_chars)
    text = joined(
        [
            f"{value} [{members(group)}]"
            if value
            else named_by(
                without(members(group)) if whole is None else said("(empty) [{members}]", members=members(group))
            )
            for value, (whole, group) in zip(values, shown, strict=True)
        ]
    )
    return joined([text, f"… +{len(split) - most_groups}"]) if len(split) > most_groups else text


def members(numbers: Iterable[int], *, most: int = MAX_SPANS) -> str:
    """`0-2,5`, and beyond `most` runs of numbers only how many numbers are left."""
    numbers = set(numbers)
    runs = runs_of(numbers)
    if len(runs) <= most:
        return ranges(numbers)
    last = runs[most - 1][1]
    left_out = {n for n in numbers if n > last}
    return f"{ranges(numbers - left_out)},… +{len(left_out)}"


def cut(values: list[str], most: int = MAX_CHARS) -> list[str]:
    """Values of at most about `most` characters; what all of them begin with goes first, for it says nothing."""
    if all(len(v) <= most for v in values):
        return values
    start = max(0, _num_common(values) - 8) if len(values) > 1 else 0
    return [_window(v, start, most) for v in values]


def _num_common(values: list[str]) -> int:
    """How many characters all values begin with."""
    first, last = min(values), max(values)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def _window(value: str, start: int, most: int) -> str:
    if len(value) <= most:
        return value
    head, part = "…" if start else "", value[start : start + most]
    return f"{head}{part}{'…' if start + most < len(value) else ''}"


def assign(name: str, value: str | None) -> str:
    """The shell command that gives `name` the value of a group: `export N=V`, or `unset N`.

    A value that was cut, or had a secret in it, cannot be typed again: `export N=...`.
    """
    if value is None:
        return f"unset {name}"
    if REDACTED in value or len(value) > MAX_TYPED:
        return f"export {name}=..."
    return f"export {name}={shlex.quote(value)}"


def exports(variable: str, names: Mapping[int, str], nodes: Iterable[int] = ()) -> list[NodeCommand]:
    """`export V=eth0` for each group of nodes that need the same value; for `nodes` where no value is known."""
    if not names:
        return [(f"export {variable}=IFNAME", tuple(nodes))]
    return [(f"export {variable}={shlex.quote(value or '')}", members) for value, members in Split.by(names).groups]


def some(items: Mapping[int, object], outliers: Iterable[int], *, most: int = MAX_EVIDENCE) -> list[int]:
    """Node ranks worth showing as evidence: the odd ones first, then the others, `most` in all."""
    odd = dict.fromkeys(n for n in outliers if n in items)
    return sorted([*odd, *(n for n in items if n not in odd)][:most])


def differing(
    values: Mapping[int, object],
    source: str,
    *,
    num_nodes: int,
    texts: Mapping[int, Text] | None = None,
    severity: Severity | None = None,
    variables: tuple[str, ...] = (),
    without: Without = missing,
    **more: object,
) -> Iterator[Hit]:
    """The hit of a rule that compares one value between nodes; nothing where all agree.  The minority is the culprit.

    Args:
        num_nodes: how many nodes could have a value: those in `values`, and those of which the fact is not known.
        texts: evidence of each node; by default its value.
        variables: culprits beside the nodes.
        without: as of `brief`.
        more: values of the message besides `split`.
    """
    split = Split.by(values, num_members=num_nodes)
    if len(split) > 1:
        odd = split.outliers()
        yield Hit(
            severity=severity,
            culprits=Culprits(nodes=odd, variables=variables),
            values={"split": brief(split, without=without), **more},
            evidence=seen(source, {n: texts[n] if texts else str(values[n]) for n in some(values, odd)}),
        )
