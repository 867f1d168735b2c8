"""What the value of a variable is: read as another one, out of range, of no effect."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, RemedyStep, Settings, Severity
from allready.rules.variables._settings import hit, problems, remedy
from allready.variables import table
from allready.variables.values import ProblemKind


@Rule(
    code="VAR008",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A switch has a value that is no number: it counts as 0",
    message="{name}={value} is read as {name}=0: a number is expected, and anything else counts as 0",
    remedy=remedy("write a number[[, {name}={better}]]"),
)
def value_read_as_zero(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Words like true, yes or on as values of variables that are read as numbers, which all switches of NCCL are.
    Words that mean 0 anyway (false, off) are left alone.
    ## Why it matters
    NCCL_IB_DISABLE=true leaves InfiniBand on, and NCCL_RAS_ENABLE=true switches RAS off, both without a warning.
    ## Check by hand
    With NCCL_DEBUG=INFO NCCL prints "NCCL_IB_DISABLE set by environment to 0".
    ## When it is harmless
    When 0 is what was meant.
    """
    for same, problem in problems(settings, ProblemKind.READ_AS_ZERO):
        yield hit(same, better=problem.better or None, command=same.export(problem.better))


@Rule(
    code="VAR009",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="Only the leading digits of a value count",
    message="{name}={value} is read as {read}: reading stops before {part}",
    remedy=remedy("write the plain number[[, {name}={better}]]"),
)
def value_cut_off(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Numbers with a unit or other letters behind them: 8M, 30min, 1800s, 4,194,304.
    ## Why it matters
    NCCL and torch read the leading digits and drop the rest: NCCL_BUFFSIZE=8M is a buffer of 8 bytes.
    ## Check by hand
    With NCCL_DEBUG=INFO NCCL prints "NCCL_BUFFSIZE set by environment to 8".
    ## When it is harmless
    When the unit happens to be the variable's own, as in a timeout of 600s that is read in seconds.
    """
    for same, problem in problems(settings, ProblemKind.CUT_OFF):
        harmless = problem.better == problem.read
        yield hit(
            same,
            severity=Severity.INFO if harmless else None,
            read=problem.read,
            part=problem.part,
            better=problem.better or None,
            command=same.export(problem.better),
        )


@Rule(
    code="VAR010",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
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
    for same, problem in problems(settings, ProblemKind.STOPS):
        yield hit(same, part=problem.part or '""', better=problem.better or None)


@Rule(
    code="VAR011",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A value outside of what the variable takes",
    message="{name}={value} is outside of {span}",
    remedy=remedy("choose a value within {span}", RemedyStep(shared="explain_variable")),
)
def value_out_of_range(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Numbers outside of the documented range, such as NCCL_IB_TIMEOUT above 31 or 0, NCCL_IB_RETRY_CNT above 7,
    NCCL_SOCKET_NTHREADS above 16.
    ## Why it matters
    The value is cut down, passed over, or means something else: NCCL_IB_TIMEOUT=0 waits forever.
    ## Check by hand
    `allready env explain NAME`.
    ## When it is harmless
    When a newer release takes more than this table knows.
    """
    for same, problem in problems(settings, ProblemKind.OUT_OF_RANGE):
        yield hit(same, span=problem.better)


MAX_WORDS = 16
"""Shown of a long list of accepted words."""


@Rule(
    code="VAR012",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A value that the variable does not accept",
    message="{name}={value}: {part} is not among the words it takes ({accepted})",
    remedy=remedy("[[write {better}|write one of {choice}]]"),
)
def value_not_known(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Words that are not among the accepted ones, or are in the wrong case where case matters (NCCL_P2P_LEVEL=nvl).
    In lists each word counts by itself; blanks belong to the word. Where plugins bring words of their own (NCCL_NET,
    FI_PROVIDER), only words that are nearly one of the known, or are another name for one (tcp for Socket).
    ## Why it matters
    NCCL passes over an unknown level or ends at an unknown algorithm; NCCL_DEBUG with an unknown word logs nothing, and
    one unknown word in NCCL_DEBUG_SUBSYS makes all of it invalid since 2.30.
    ## Check by hand
    `allready env explain NAME` lists the accepted words.
    ## When it is harmless
    When a newer release, or a plugin, knows the word.
    """
    for same, problem in problems(settings, ProblemKind.UNKNOWN_WORD, ProblemKind.WRONG_CASE):
        words = table.load()[same.name].values
        is_near = problem.better != ", ".join(words)
        accepted = ", ".join([*words[:MAX_WORDS], "..."] if len(words) > MAX_WORDS else words)
        yield hit(
            same,
            part=repr(problem.part),
            accepted=accepted,
            better=problem.better if is_near else None,
            choice=None if is_near else accepted,
        )


@Rule(
    code="VAR013",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A value that does not do what it says",
    message="{name}={value} acts like {read}",
    remedy=remedy("[[write {name}={better}|remove {extra}]]"),
)
def value_without_effect(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Switches that know one value only: torch reads TORCH_SHOW_CPP_STACKTRACES and others as on when they are exactly 1,
    so that true means off; and PYTORCH_NO_CUDA_MEMORY_CACHING or NVTX_DISABLE are on as soon as they are set, even
    to 0.  NCCL_WORK_FIFO_BYTES takes powers of two only, and stays at its default for other numbers.
    ## Why it matters
    The feature is off although it was switched on, or on although it was switched off; the size is not the chosen one.
    ## Check by hand
    `allready env explain NAME --value VALUE`.
    ## When it is harmless
    When the effect is the wanted one.
    """
    for same, problem in problems(settings, ProblemKind.WITHOUT_EFFECT):
        read = f"{same.name}={problem.read or '0'}"
        yield hit(same, read=read, better=problem.better or None, extra=None, command=same.export(problem.better))
    for same, _ in problems(settings, ProblemKind.STILL_ON):
        name = same.name
        yield hit(same, read=f"{name}=1", better=None, extra=name, command=same.unset())


@Rule(
    code="VAR014",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
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
    for same, problem in problems(
        settings, ProblemKind.MALFORMED, ProblemKind.LITERAL_QUOTES, ProblemKind.LITERAL_TILDE
    ):
        yield hit(same, part=problem.part, better=problem.better or None)
