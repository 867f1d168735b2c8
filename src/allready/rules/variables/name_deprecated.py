"""VAR004."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, PerNode, Settings, Severity, SoftwareFacts
from allready.model.fill import UNKNOWN
from allready.rules.variables._settings import hit, known, remedy, versions
from allready.variables.versions import Standing, found_of, standing


@Rule(
    code="VAR004",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="The old name of a variable",
    message="{name} is deprecated since {owner} {version}[[: {instead} has taken its place]]",
    remedy=remedy("[[from {owner} {version} on write {instead} instead of {name}|remove {extra}]]"),
)
def name_deprecated(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Names that the installed version still reads but has a successor for, such as NCCL_BLOCKING_WAIT and
    NCCL_ASYNC_ERROR_HANDLING (TORCH_NCCL_... since torch 2.2), TORCH_NCCL_TRACE_BUFFER_SIZE (TORCH_FR_BUFFER_SIZE since
    2.8) and NCCL_MAX_NCHANNELS. Where no version is found, as in a guide or for another machine's file, names that
    newer versions replace are reported as well.
    ## Why it matters
    Old names go away: torch 2.15 dropped some. When old and new are both set, the new one wins, with no message.
    ## Check by hand
    `allready env explain NAME`.
    ## When it is harmless
    As long as the version in use reads it; and where a script must also serve older versions.
    """
    for variable, same in known(settings):
        have = versions(software)
        state = standing(variable, have)
        is_open = state is Standing.READ and variable.deprecated and not found_of(variable.owner, have)
        if state is not Standing.DEPRECATED and not is_open:
            continue
        bare = variable.use if variable.use.replace("_", "").isalnum() and variable.use.isupper() else ""
        yield hit(
            same,
            owner=variable.software,
            version=variable.deprecated,
            instead=variable.use or UNKNOWN,
            extra=UNKNOWN if variable.use else variable.name,
            command=same.export(same.value, name=bare) if bare else "" if variable.use else same.unset(),
        )
