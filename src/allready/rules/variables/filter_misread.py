"""VAR015."""

import re
from collections.abc import Iterator
from itertools import takewhile

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, PerNode, Settings, Severity, SoftwareFacts
from allready.rules.variables._settings import hit, known, remedy, versions
from allready.variables.filters import MAX_PARTS, RAILS_SINCE, flaws
from allready.variables.table import Type
from allready.variables.versions import found_of


@Rule(
    code="VAR015",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="NCCL reads a filter differently from what it seems to say",
    message="{name}={value}: NCCL takes {entry} literally; there are no wildcards, blanks count, ^ and = have a "
    "meaning only in front of the whole list, as ^, = or ^=, and behind a device stand port and, since 2.30, rail "
    "and plane",
    remedy=remedy("write the list without blanks, with at most one ^ or = in front of it: {example}"),
)
def filter_misread(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    The lists in NCCL_SOCKET_IFNAME, NCCL_OOB_NET_IFNAME and NCCL_IB_HCA: blanks, wildcards (eth*), other separators
    than a comma, a ^ or = in front of a later entry, =^ instead of ^=, ports that are no numbers, and more numbers
    behind a device than the NCCL found reads: port, since 2.30 also rail and plane.
    ## Why it matters
    NCCL cuts nothing off: "eth0, eth1" asks for an interface called " eth1", ^lo,^docker0 leaves docker0 in, and
    eth* is the beginning of no name (eth is).
    ## Check by hand
    `allready env explain NAME --value VALUE` shows what the value selects on this machine.
    ## When it is harmless
    When the other entries alone select what is wanted.
    """
    nccl = found_of("nccl", versions(software))
    for variable, same in known(settings):
        value = same.value
        if value is None or variable.type not in {Type.IFNAMES, Type.HCAS}:
            continue
        has_rails = variable.type is Type.HCAS and not (nccl and nccl < RAILS_SINCE)
        flaw = next((f for f in flaws(value, has_rails=has_rails) if f.kind != "empty-entry"), None)
        if flaw is not None:
            yield hit(same, entry=repr(flaw.entry), example=_cleaned(value, MAX_PARTS if has_rails else 2))


def _cleaned(value: str, most: int) -> str:
    """The list as its author most likely means it."""
    words = re.split(r"[,;|\s]+", value.strip())
    marks = {mark for word in words for mark in word[: len(word) - len(word.lstrip("^="))]}
    front = "".join(mark for mark in "^=" if mark in marks)
    bare = (re.split(r"[*?\[]", word.lstrip("^= "))[0].split(":") for word in words)
    return front + ",".join(
        ":".join([name, *takewhile(str.isdecimal, parts[: most - 1])]) for name, *parts in bare if name
    )
