"""How a process finds its GPU."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, PerNode, Setting, Settings, Severity, SoftwareFacts, SourceCall
from allready.rules.variables._settings import Same, at_line, backend, hit, line_remedy, remedy, versions
from allready.variables.table import Reader
from allready.variables.versions import found_of, is_before


@Rule(
    code="VAR031",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="The NCCL back-end chooses the GPU by itself, and may choose a wrong one",
    message="{name}={value}: torch's back-end nccl2 opens its communicator in init_process_group, on the GPU of "
    "device_id, else of LOCAL_RANK, else of the rank; without device_id this may be another GPU than the rank's own",
    remedy=remedy("pass device_id=torch.device('cuda', LOCAL_GPU) to init_process_group[[ ({call})]]"),
)
def backend_picks_device(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    With torch's back-end nccl2 (the default since 2.15), and init_process_group without device_id: whether RANK is set
    without LOCAL_RANK, or CUDA_VISIBLE_DEVICES is set beside LOCAL_RANK so that each process has one GPU, number 0, as
    CUDA_VISIBLE_DEVICES=$LOCAL_RANK, CUDA_VISIBLE_DEVICES=$SLURM_LOCALID and Slurm's --gpus-per-task=1 do.
    ## Why it matters
    Earlier back-ends waited for the first collective, and took the GPU of its tensor. This one takes LOCAL_RANK, or the
    rank, as the number of a GPU at once: "invalid device ordinal", or "Duplicate GPU detected" where two ranks get one.
    ## Check by hand
    `python -c 'import torch; print(torch.__version__)'`; read the call of init_process_group.
    ## When it is harmless
    When the script does not use NCCL, or passes device_id in a way that cannot be read here.
    """
    if backend(settings, software) is not Reader.NCCL2:
        return
    calls = [c for c in settings.calls if c.function == "init_process_group" and c.backend in {None, "nccl", "nccl2"}]
    open_calls = [c for c in calls if "device_id" not in c.keywords]
    if calls and not open_calls:
        return
    odd = next(filter(None, map(_odd, settings.environments())), None)
    if odd is not None:
        yield hit(
            Same((odd,)),
            severity=None if open_calls else Severity.INFO,
            confidence=Confidence.POSSIBLE,
            call=_place(open_calls),
        )


def _odd(settings: Settings) -> Setting | None:
    """A setting because of which LOCAL_RANK is not the number of the rank's GPU."""
    rank, local, gpus = (settings.last(n) for n in ("RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES"))
    if rank is not None and local is None:
        return rank
    if settings.one_gpu_per_task and local is not None and (local.is_of_rank or (local.value or "0") != "0"):
        return local
    if gpus is not None and gpus.is_of_rank:
        return gpus if local is None or local.value != "0" else None
    if gpus is None or local is None:
        return None
    one = gpus.value is not None and gpus.value.isdecimal()
    return gpus if one and (local.value or "").isdecimal() and local.value != "0" else None


def _place(calls: list[SourceCall]) -> str | None:
    return f"{calls[0].source}:{calls[0].line}" if calls else None


FIRST, FIXED = (2, 6, 0), (2, 7, 1)


@Rule(
    code="VAR032",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="device_id can hang with this version of torch",
    message="init_process_group with device_id can hang at random with torch {found}",
    remedy=line_remedy("update torch to 2.7.1 or newer, or leave device_id out and call torch.cuda.set_device before"),
)
def device_id_hangs(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Calls of init_process_group with device_id in the Python files given, with torch 2.6.0 to 2.7.0.
    ## Why it matters
    In these releases the eager start that device_id asks for hangs now and then (pytorch/pytorch issue 153960).
    ## Check by hand
    `python -c 'import torch; print(torch.__version__)'`.
    ## When it is harmless
    With torch 2.7.1 and newer. The warning that device_id avoids is harmless.
    """
    torch = found_of("torch", versions(software))
    if not torch or is_before(torch, FIRST) or not is_before(torch, FIXED):
        return
    for call in settings.calls:
        if call.function == "init_process_group" and "device_id" in call.keywords and call.backend != "gloo":
            found = ".".join(map(str, torch))
            yield at_line(call.source, call.line, "device_id", found=found, confidence=Confidence.LIKELY)
