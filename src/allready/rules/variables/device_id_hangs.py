"""VAR032."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, PerNode, Settings, Severity, SoftwareFacts
from allready.rules.variables._settings import at_line, line_remedy, versions
from allready.variables.versions import found_of, is_before

FIRST, FIXED = (2, 6, 0), (2, 7, 1)


@Rule(
    code="VAR032",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
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
