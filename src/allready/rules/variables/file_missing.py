"""VAR029."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Settings, Severity
from allready.rules.variables._settings import hit, known, remedy


@Rule(
    code="VAR029",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A file that a variable names is not there",
    message="{name}={value}: there is no such file here",
    remedy=remedy("correct the path, or remove {name}"),
)
def file_missing(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Paths of files that NCCL reads: topology, graph, configuration, tuner, plugins that are given with a path.
    ## Why it matters
    NCCL goes on without the file: with another topology, without the plugin, that is without EFA or FastRak.
    ## Check by hand
    `ls -l PATH` in the container of the job.
    ## When it is harmless
    When the file is there where the job runs, for example in its image.
    """
    for variable, same in known(settings, here=True):
        if variable.machine and same.value in settings.missing_files:
            yield hit(same, confidence=same.sureness, command=same.unset())
