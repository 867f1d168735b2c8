"""VAR010."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, RemedyStep, Settings, Severity
from allready.model.fill import UNKNOWN
from allready.rules.variables._settings import hit, problems, remedy
from allready.variables.values import Kind


@Rule(
    code="VAR010",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A value with which the program ends at start",
    message="{name}={value}: the program that reads it ends with an error, because of {part}",
    remedy=remedy(
        "write a value that is accepted[[: {better} instead of {part}]]", RemedyStep(shared="explain_variable")
    ),
)
def value_stops_program(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Values that make their reader raise an error: torch's switches take y, yes, 1, t, true, n, no, 0, f and false only
    (on and an empty value are errors), its numbers must begin with a digit, JAX's switches also take on and off.
    Options of PYTORCH_ALLOC_CONF are name:value, and flags for TPU do not belong in XLA_FLAGS. A switch among XLA's
    flags takes true, false, 1 and 0, a number digits only, and each number needs its "=". CUDA_VISIBLE_DEVICES
    with a GPU that comes twice hides all GPUs.
    ## Why it matters
    The job does not start, or ends at the first use of the GPU, on every rank that has this value.
    ## Check by hand
    The error names the variable: "Invalid value for environment variable".
    ## When it is harmless
    When the program that would read it is not part of the job.
    """
    for same, problem in problems(settings, Kind.STOPS):
        yield hit(same, part=problem.part or '""', better=problem.better or UNKNOWN)
