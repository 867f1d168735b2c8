from collections.abc import Iterator, Sequence

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import hit_of_lines
from allready.judging.signature_rules import called
from allready.model import Event, FaultClass, Hit, RunEvidence, Severity
from allready.rules.fallback import peer_gone, store_gone
from allready.rules.fallback._victims import lost
from allready.rules.fallback.unexplained_warning import OTHER
from allready.signatures import load

RESULTS = {
    "nccl.result_cuda": "ncclUnhandledCudaError", "nccl.result_system": "ncclSystemError",
    "nccl.result_internal": "ncclInternalError", "nccl.result_invalid": "ncclInvalidUsage",
    "nccl.result_remote": "ncclRemoteError",
}  # fmt: skip
MORE_SPECIFIC = {OTHER, *peer_gone.SIGNATURES, *store_gone.SIGNATURES}


@Rule(
    code="RES004",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.FALLBACK,
    applies=Applies.OFFLINE,
    title="NCCL failed; only the return code was logged",
    message="[[{who}: ]]NCCL failed with {result}[[; the last error that it kept, which no known fault explains: "
    "'{said}'|, and no file has the warning with the reason]]",
    remedy="run again with NCCL_DEBUG=WARN (INFO for the lines before it) and give diagnose the output of all ranks: "
    "the first NCCL WARN is the reason. What it may be: ncclUnhandledCudaError a CUDA call, ncclSystemError a socket, "
    "a file, memory or RDMA, ncclInvalidUsage a call of the program, ncclRemoteError another process that ended first",
)
def result_only(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Exceptions with NCCL's result, where no file has a warning of NCCL, a lost connection or any cause.  torch repeats
    the last error that NCCL kept (`Last error:`), which may be the reason and may be unrelated.
    ## Why it matters
    The result says which kind of call failed and not why.  NCCL prints the reason only with NCCL_DEBUG=WARN or more.
    ## Check by hand
    `grep -c "NCCL WARN" *.log`: without any, NCCL_DEBUG was not set.
    ## When it is harmless
    When the program caught the exception on purpose and went on.
    """
    if any(e.signature in MORE_SPECIFIC for e in run.events):
        return
    events = lost(case, RESULTS)
    if not events:
        return
    local = [e for e in events if e.signature != "nccl.result_remote"] or events
    first = min(local, key=lambda e: (e.time_s is None, e.time_s or 0.0))
    alike = [e for e in local if e.signature == first.signature]
    yield hit_of_lines(
        alike,
        values={"who": called(run, alike), "result": RESULTS[first.signature], "said": _said(alike)},
        fault_class=load()[first.signature].fault_class,
    )


def _said(events: Sequence[Event]) -> str | None:
    """NCCL's last warning in that process, which torch prints below the result: it need not be the reason."""
    return next((said for e in events if (said := e.values.get("last_error", "").strip())), None)
