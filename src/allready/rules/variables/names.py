"""What reads a variable of this name: nothing, another version, another back-end."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, PerNode, Settings, Severity, SoftwareFacts
from allready.rules.variables._settings import backend, grouped, hit, known, remedy, versions
from allready.variables import names, table
from allready.variables.versions import Standing, found_of, standing


@Rule(
    code="VAR001",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A variable that no library reads",
    message="{name}={value}: no release of NCCL, PyTorch, Gloo or JAX reads a variable of this name",
    remedy=remedy("remove {name}[[; what does it: {instead}]]"),
)
def name_read_by_nothing(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Names that guides pass on and that no library has ever read: NCCL_TIMEOUT, NCCL_SOCKET_TIMEOUT, NCCL_IB_ENABLE and
    about 20 more, and slips of these (NCCL_ENABLE_IB). `allready env explain NAME` says what each was meant to do.
    ## Why it matters
    With NCCL_TIMEOUT=3600 in the script the timeout is the same as before, and the job ends after it.
    ## Check by hand
    `strings` on libnccl.so.2 and libtorch_cuda.so, followed by `grep -w NAME`, prints nothing.
    ## When it is harmless
    When your own script or launcher reads it.
    """
    for same in grouped(settings.settings):
        variable = table.load().get(same.name) or table.load().get(misspelt(same.name, is_folk=True) or "")
        if variable is not None and variable.is_folk:
            yield hit(same, instead=variable.use or None, command=same.unset())


_SURE = frozenset({"NCCL", "GLOO"})


@Rule(
    code="VAR002",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
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


@Rule(
    code="VAR003",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
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
            instead = names.instead_of(name)
            yield hit(
                same,
                severity=Severity.WARNING if instead else None,
                confidence=Confidence.LIKELY,
                family=names.family(name),
                instead=instead or None,
            )


@Rule(
    code="VAR004",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
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
            instead=variable.use or None,
            extra=None if variable.use else variable.name,
            command=same.export(same.value, name=bare) if bare else "" if variable.use else same.unset(),
        )


@Rule(
    code="VAR005",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A variable that this version no longer reads",
    message="{name}={value} has no effect: {owner} no longer reads it since {version}",
    remedy=remedy("remove {name}[[; what does it now: {instead}]]"),
)
def name_no_longer_read(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Names that an earlier release read and the installed one does not: NCCL_LL_THRESHOLD, NCCL_TREE_THRESHOLD,
    NCCL_IB_CUDA_SUPPORT, TORCH_NCCL_AVOID_RECORD_STREAMS with torch 2.15. Where no version is found, only names that no
    supported release reads.
    ## Why it matters
    The setting does nothing, and the job does not do what its script says.
    ## Check by hand
    `allready env explain NAME`.
    ## When it is harmless
    When the same script also serves older versions.
    """
    for variable, same in known(settings):
        if not variable.is_folk and standing(variable, versions(software)) is Standing.REMOVED:
            yield hit(
                same,
                owner=variable.software,
                version=variable.removed,
                instead=variable.use or None,
                command=same.unset(),
            )


@Rule(
    code="VAR006",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
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


@Rule(
    code="VAR007",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A variable that the NCCL back-end in use does not read",
    message="{name}={value} has no effect: torch's back-end for NCCL is {backend} here, which does not read it",
    remedy=remedy("remove {name}, or set TORCH_DIST_USE_NCCL2=0 on all ranks to have the earlier back-end"),
)
def name_ignored_by_backend(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    PyTorch 2.15 replaced its NCCL back-end by another one, called nccl2, which reads eight of the earlier one's
    variables. The others, among them TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, TORCH_NCCL_ENABLE_MONITORING,
    TORCH_NCCL_DESYNC_DEBUG and TORCH_NCCL_NAN_CHECK, have no reader there. Which back-end is in use follows from
    torch's version and TORCH_DIST_USE_NCCL2.
    ## Why it matters
    A heartbeat timeout or a desync report that was relied on is no longer there, without a warning.
    ## Check by hand
    `python -c 'import torch; print(torch.__version__)'`; `echo "$TORCH_DIST_USE_NCCL2"`.
    ## When it is harmless
    When the job does not use NCCL, or asks for the back-end "nccl-legacy" by its name.
    """
    used = backend(settings, software)
    for variable, same in known(settings):
        if used is not None and standing(variable, versions(software), used) is Standing.IGNORED:
            yield hit(same, backend=used.value, command=same.unset())
