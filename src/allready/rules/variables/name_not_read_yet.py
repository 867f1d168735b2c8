"""VAR006."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, PerNode, Settings, Severity, SoftwareFacts
from allready.rules.variables._settings import hit, known, remedy, versions
from allready.variables.versions import Standing, found_of, standing


@Rule(
    code="VAR006",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A variable that only a later version reads",
    message="{name}={value} has no effect with {owner} {found}: only {version} and newer read it",
    remedy=remedy("update {owner} to {version}, or remove {name}"),
)
def name_not_read_yet(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Names that appeared in a later release than the one installed here. Only where the version is known.
    ## Why it matters
    NCCL and PyTorch do not warn of names that they do not know: a setting from a newer guide does nothing.
    ## Check by hand
    `python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'` and `allready env explain NAME`.
    ## When it is harmless
    When the same file also serves newer installations.
    """
    found = versions(software)
    for variable, same in known(settings):
        if standing(variable, found) is Standing.NOT_YET:
            yield hit(
                same,
                owner=variable.software,
                version=variable.since,
                found=".".join(str(n) for n in found_of(variable.owner, found)),
                command=same.unset(),
            )
