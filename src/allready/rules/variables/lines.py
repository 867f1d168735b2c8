"""Lines of files with settings that are no assignments, or are not passed on."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, Malformed, Settings, Severity, Slip, SourceKind
from allready.patterns import compiled
from allready.rules.variables._settings import Same, at_line, hit, known, line_remedy, remedy
from allready.rules.variables.names import misspelt
from allready.variables import table
from allready.variables.table import Reader

_NAME = r"\b[A-Z][A-Z0-9_]{2,}\b"
_BLANKS = {Slip.BLANK_BEFORE_EQUALS, Slip.BLANK_AFTER_EQUALS}


@Rule(
    code="VAR026",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A line that assigns nothing, because of blanks around =",
    message="{text} sets no variable: there must be no blank around =",
    remedy=line_remedy("write {name}=VALUE without blanks around ="),
)
def line_assigns_nothing(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Lines like `export NCCL_DEBUG = INFO` or `NCCL_DEBUG= INFO` with a name that a library reads.
    ## Why it matters
    The shell takes the parts as separate words: the variable stays as it was, or becomes empty, and the script goes on
    after at most one message.
    ## Check by hand
    `bash -n` accepts the line; `bash -x SCRIPT` shows what it does.
    ## When it is harmless
    In a file that no shell reads, with a reader that allows blanks.
    """
    for line in settings.malformed:
        name = _name(line)
        if line.slip in _BLANKS and name is not None:
            yield at_line(line.source, line.line, name, text=repr(line.text[:80]))


def _name(line: Malformed) -> str | None:
    """The variable that the line is about, if a library reads it."""
    for word in compiled(_NAME).findall(line.text):
        if word in table.load() or misspelt(word) is not None:
            return str(word)
    return None


@Rule(
    code="VAR027",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A value in a manifest that is no text",
    message="the value of {name} is a number or a truth value for YAML; Kubernetes takes texts only",
    remedy=line_remedy('put it in quotation marks: value: "{value}"'),
)
def manifest_value_not_text(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Entries of `env:` in a manifest whose value YAML reads as a number, true or false: `value: 1`, `value: yes`.
    ## Why it matters
    The API server refuses the whole object: "cannot unmarshal number into Go struct field EnvVar.value of type string".
    ## Check by hand
    `kubectl apply --dry-run=server -f FILE`.
    ## When it is harmless
    When a template makes a text of it before it is sent.
    """
    for line in settings.malformed:
        if line.slip is Slip.NOT_A_TEXT:
            name, _, value = line.text.partition(": ")
            yield at_line(line.source, line.line, name, value=value[:80])


@Rule(
    code="VAR025",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
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


_OF_JOBS = frozenset({
    Reader.LIBNCCL, Reader.NCCL, Reader.NCCL2, Reader.GLOO, Reader.C10D, Reader.RECORDER, Reader.SYMM_MEM,
    Reader.TENSORPIPE, Reader.TORCHRUN, Reader.UCX, Reader.LIBFABRIC, Reader.NET_PLUGIN, Reader.NVSHMEM,
})  # fmt: skip
"""What no build of an image needs."""


@Rule(
    code="VAR035",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A variable that a Dockerfile sets for the build only",
    message="{text} sets {name} while the image is built, not in the image: no job in a container has it",
    remedy=line_remedy("write ENV {name}=VALUE"),
)
def run_sets_nothing(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Steps RUN of a Dockerfile that only export variables, and ARG with a default and no ENV of its name, for variables
    that a job reads: those of NCCL, torch.distributed, Gloo, torchrun, UCX, libfabric.
    ## Why it matters
    Each RUN is a shell of its own, which ends with its step, and ARG is gone when the image is built. NCCL and torch in
    a container that is started from the image never see the value.
    ## Check by hand
    `docker run --rm IMAGE env | grep NAME`.
    ## When it is harmless
    Where a later step of the same build, or the command that starts the container (`docker run -e`), gives the
    variable as well.
    """
    for line in settings.malformed:
        if line.slip is Slip.ONLY_IN_BUILD:
            variable = table.load().get(line.name)
            if variable is not None and _OF_JOBS & set(variable.readers):
                yield at_line(line.source, line.line, line.name, confidence=Confidence.LIKELY, text=line.text)
