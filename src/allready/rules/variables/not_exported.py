"""VAR025."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, Settings, Severity, SourceKind
from allready.rules.variables._settings import Same, hit, known, remedy


@Rule(
    code="VAR025",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A variable of the shell that is not exported",
    message="{name}={value} is a variable of the shell only: without export no program that the script starts has it",
    remedy=remedy("write export {name}={value}"),
)
def not_exported(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Lines NAME=VALUE of shell scripts, with a name that a library reads, which no `export` and no `set -a` gives to the
    programs that the script starts.
    ## Why it matters
    NCCL and torch never see the value.
    ## Check by hand
    `bash -c 'source SCRIPT; env | grep NAME'`.
    ## When it is harmless
    When the environment has had the variable before (then the assignment changes it), when the script itself uses it
    ($MASTER_PORT in a command line), or exports it in a file that it reads.
    """
    for variable, same in known(settings):
        if variable.set_by and same.value is None:  # WORLD_SIZE=$((GPUS * NODES)) of a script whose launcher sets it
            continue
        left = [s for s in same.all if not s.exported and s.kind in {SourceKind.SHELL, SourceKind.BATCH}]
        if left and same.name not in settings.used and not _is_exported_elsewhere(settings, same.name):
            yield hit(Same(tuple(left)), confidence=Confidence.LIKELY)


def _is_exported_elsewhere(settings: Settings, name: str) -> bool:
    """The shell keeps the mark of a variable that was exported once, before or after."""
    return any(s.name == name and s.exported for s in settings.settings)
