"""VAR030."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Settings, Severity
from allready.rules.variables._settings import hit, known, remedy

_NO_FILES = ("/dev/", "/proc/self/fd/")


@Rule(
    code="VAR030",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="All ranks write one log file",
    message="{name}={value}: all processes of a node write this one file, each over what the others wrote",
    remedy=remedy("put host and process into the name: {name}={better}"),
)
def log_file_shared(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL_DEBUG_FILE without %p (process) in the name.
    ## Why it matters
    Each process opens the file itself and empties it. What is left is a mixture, mostly of one rank; on a shared file
    system of one rank of the whole job, unless %h (host) is in the name as well.
    ## Check by hand
    `grep -c "NCCL INFO" FILE` counts one rank's lines.
    ## When it is harmless
    With one process in all, or a launcher that gives each its own value.
    """
    for variable, same in known(settings):
        value = same.value
        if variable.name != "NCCL_DEBUG_FILE" or not value or "%p" in value:
            continue
        if value not in {"stdout", "stderr"} and not value.startswith(_NO_FILES):
            stem, dot, ending = value.rpartition(".")
            root = stem if dot and not set(ending) & set("/%") else value
            better = f"{root}{'' if '%h' in value else '.%h'}.%p" + (f".{ending}" if root == stem else "")
            yield hit(same, better=better, command=same.export(better))
