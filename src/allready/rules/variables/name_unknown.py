"""VAR003."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, Settings, Severity
from allready.model.fill import UNKNOWN
from allready.rules.variables._settings import grouped, hit, remedy
from allready.rules.variables.name_misspelt import misspelt
from allready.variables import names, table


@Rule(
    code="VAR003",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="An unknown variable of a library's family",
    message="{name} begins like a variable of {family}, but is none of those that releases up to today read",
    remedy=remedy("check the name; a plugin or your own program may read it[[; what does such a thing: {instead}]]"),
)
def name_unknown(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Names that begin with NCCL_, TORCH_NCCL_, TORCH_FR_, GLOO_, TORCHELASTIC_ or ACCELERATE_ and that neither the table
    of variables nor its lists of plugins and build systems know. A name that says what it is for (NCCL_COMM_TIMEOUT,
    NCCL_NUM_CHANNELS) is a warning, with what does it.
    ## Why it matters
    These families are known completely, from the strings of the released libraries: another name has no effect, unless
    a plugin or your own program reads it.
    ## Check by hand
    `strings` on libnccl.so.2 and libtorch_cuda.so, followed by `grep -w NAME`.
    ## When it is harmless
    With a plugin that is not public, a library newer than this table, or a script of your own.
    """
    for same in grouped(s for s in settings.settings if not s.is_of_build):
        name = same.name
        is_own = not same.first.exported and name in settings.used  # NCCL_OPTS of a script that uses $NCCL_OPTS
        if is_own or name in table.load() or table.is_elsewhere(name) is not None:
            continue
        if misspelt(name) is not None or misspelt(name, is_folk=True) is not None:
            continue
        if names.family(name) in names.FAMILIES or name.startswith(("TORCH_NCCL_", "TORCH_FR_")):
            instead = names.meant(name)
            yield hit(
                same,
                severity=Severity.WARNING if instead else None,
                confidence=Confidence.LIKELY,
                family=names.family(name),
                instead=instead or UNKNOWN,
            )
