"""VAR033."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, PerNode, Settings, Severity, SoftwareFacts
from allready.rules.variables._settings import hit, known, remedy, versions
from allready.variables import names, table
from allready.variables.table import Type
from allready.variables.versions import Standing, is_before, standing, version

HAS_FLAGS = "XLA_FLAGS"


@Rule(
    code="VAR033",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A flag that XLA does not know",
    message="{name} has {flag}, a flag that XLA[[ of {owner} {version}]] does not have",
    remedy=remedy("remove {flag}[[; in its place: {better}]]"),
)
def xla_flag_unknown(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Flags in XLA_FLAGS that no jaxlib from 0.4.30 to 0.12 has, that are misspelt, that the installed jaxlib has no
    longer, or that only a later one has.
    ## Why it matters
    XLA ends the process at the first unknown flag: "Unknown flags in XLA_FLAGS".
    ## Check by hand
    `XLA_FLAGS=FLAG python -c 'import jax; jax.devices()'`.
    ## When it is harmless
    With an XLA of your own that has it.
    """
    have = versions(software)
    for variable, same in known(settings):
        if variable.type is not Type.FLAGS or variable.name != HAS_FLAGS:
            continue
        value = same.value or ""
        for word in value.split()[:256]:
            flag = word.partition("=")[0]
            wrong = _judge(flag, have) if flag.startswith("--xla_") else None
            if wrong is not None:
                yield hit(
                    same,
                    confidence=wrong.confidence,
                    flag=flag,
                    better=wrong.better or None,
                    owner=wrong.owner or None,
                    version=wrong.version or None,
                    command=same.export(value.replace(flag, wrong.better)) if wrong.better in table.names() else "",
                )


class _Wrong(Struct, frozen=True):
    better: str
    owner: str = ""
    version: str = ""
    confidence: Confidence = Confidence.CERTAIN


def _judge(flag: str, have: Mapping[str, str]) -> _Wrong | None:
    """What is wrong with a flag; None when it is right, or is no flag that the table is sure of."""
    row = table.find(flag)
    installed = have.get("jaxlib") or have.get("jax") or ""
    if row is None:
        return _without_row(flag, installed)
    if row.is_folk:
        return _Wrong(row.use)
    if standing(row, have) in {Standing.REMOVED, Standing.NOT_YET} and installed:
        return _Wrong(row.use, "jaxlib", installed)
    return None


def _without_row(flag: str, installed: str) -> _Wrong | None:
    """The same for one of the many flags that have no row."""
    seen = table.flags_seen()
    have, oldest, newest = version(installed), version(seen.releases[0]), version(seen.releases[-1])
    near = next((name for name in names.nearest(flag, most=1) if name.startswith("--")), "")
    if flag not in seen.flags:
        is_other = bool(have) and (is_before(newest, have) or is_before(have, oldest))
        if is_other and not near:
            return None  # this release may have it
        return _Wrong(near, confidence=Confidence.CERTAIN if have and not is_other else Confidence.LIKELY)
    first, last = (version(text) for text in seen.flags[flag].split())
    searched = [v for v in map(version, seen.releases) if have and not is_before(have, v)]
    is_gone = any(is_before(last, v) for v in searched)
    is_to_come = bool(have) and any(is_before(v, first) and not is_before(v, have) for v in map(version, seen.releases))
    return _Wrong("", "jaxlib", installed) if is_gone or is_to_come else None
