"""VAR002."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, Settings, Severity
from allready.rules.variables._settings import grouped, hit, remedy
from allready.variables import names, table

_SURE = frozenset({"NCCL", "GLOO"})


@Rule(
    code="VAR002",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A variable's name is misspelt",
    message="nothing reads {name}; the variable is {near}",
    remedy=remedy("write {near} instead of {name}"),
)
def name_misspelt(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Names that differ from a known one in one or two letters, in case, in the order or the spelling of their words
    (NCCL_IB_RETRY_COUNT, WORLDSIZE), or by a part that is missing (NCCL_NVLS, NCCL_ENABLE_MONITORING). Names of other
    software (build systems, cloud plugins, schedulers) are known and left alone.
    ## Why it matters
    No library warns of a name that it does not know: the setting has no effect, and a typo can stay for months.
    ## Check by hand
    `allready env explain NAME` says which names are known.
    ## When it is harmless
    When your own program reads exactly this name.
    """
    for same in grouped(s for s in settings.settings if not s.is_of_build):
        near = misspelt(same.name)
        if near is None or ("_" not in same.name and same.name in settings.used):  # WORLDSIZE of the script itself
            continue
        yield hit(
            same,
            near=near,
            command=same.export(same.value, name=near),
            confidence=Confidence.CERTAIN if names.family(near) in _SURE else Confidence.LIKELY,
        )


def misspelt(name: str, *, is_folk: bool = False) -> str | None:
    """The known name that `name` is a slip of the pen for; only within one library: NODE_RANK is no ROLE_RANK.

    is_folk: a name that itself nothing reads.
    """
    if name in table.load() or table.is_elsewhere(name) is not None:
        return None
    near = names.nearest(name, most=1)
    fits = bool(near) and names.is_folk(near[0]) == is_folk and _is_same_library(name, near[0])
    return near[0] if fits else None


def _is_same_library(name: str, near: str) -> bool:
    """Whether both begin with the same word, or the first word itself is misspelt and the rest is right."""
    if near.startswith(f"TORCH_{name.upper()}") or near.replace("_", "") == name.upper():
        return True
    one, _, rest = name.upper().partition("_")
    other, _, theirs = near.partition("_")
    same_words = set(name.upper().split("_")) == set(near.split("_"))
    return other in _LIBRARIES and (one == other or rest == theirs or same_words)


_LIBRARIES = frozenset({
    "NCCL", "TORCH", "PYTORCH", "GLOO", "CUDA", "JAX", "XLA", "OMP", "UCX", "FI", "NVSHMEM", "TORCHELASTIC", "TP",
    "MASTER", "NVIDIA", "WORLD", "KMP", "PET", "ACCELERATE", "FSDP", "HF", "TRANSFORMERS", "TOKENIZERS", "DS",
    "DEEPSPEED", "WANDB", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONFAULTHANDLER",
})  # fmt: skip
