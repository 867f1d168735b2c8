"""VAR014."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Settings, Severity
from allready.model.fill import UNKNOWN
from allready.rules.variables._settings import hit, problems, remedy
from allready.variables.values import Kind


@Rule(
    code="VAR014",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A value that is not of the variable's form",
    message="{name}={value}: {part} does not have the form that {name} takes",
    remedy=remedy("write it in the form [[{better}|that it takes]]"),
)
def value_malformed(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Addresses without a port, host names with http:// in front, ranges that are no CIDR, lists of CPUs and GPUs that
    cannot be read; quotes that are part of the value (`docker --env-file` and NCCL's configuration files keep them);
    and a ~ that no shell expands.
    ## Why it matters
    The library searches for an interface, a file or a host of exactly this name, and finds none.
    ## Check by hand
    `printenv NAME` shows the value as the program gets it.
    ## When it is harmless
    When another program reads the file and takes the quotes off.
    """
    for same, problem in problems(settings, Kind.MALFORMED, Kind.LITERAL_QUOTES, Kind.LITERAL_TILDE):
        yield hit(same, part=problem.part, better=problem.better or UNKNOWN)
