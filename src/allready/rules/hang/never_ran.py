from collections.abc import Iterator

from allready import units
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.transfer import SLOW_LINK_GB_PER_S, default_timeout_of, size_range, transfer_time_s
from allready.model import Confidence, Evidence, FaultClass, Hit, RunEvidence, Severity, clock_time

FAR = 5.0
"""A time-out this many times the time that a slow link needs was not too short."""


@Rule(
    code="HNG007",
    severity=Severity.INFO,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.TRANSPORT,
    title="The timeout was long enough: the operation was stalled",
    message="[[{operation}|an operation]] of {num_elements} elements ({size}) needs about {needed} over {gb_per_s} "
    "GB/s; its timeout was {timeout} s{default}. The operation was stalled[[ from {since} on]], not slow: most often "
    "because a rank did not enter it",
    remedy="look for a rank that did not enter[[, in the time around {since}]]; if all entered, for a link or a GPU "
    "that failed then. Do not raise the time-out, and do not split the tensor: neither helps",
)
def never_ran(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    The size of the operation that timed out against its time-out, over a link of 1 GB/s, which is slower than any
    network between training nodes; and whether the time-out is a library's default.
    ## Why it matters
    "Ran for 600053 milliseconds" reads as if it had been slow.  467,019,003 elements take two seconds over 1 GB/s:
    a time-out of 600 s means that it was stalled, and that the fault began 600 s before the line was written.  Mostly a
    rank never came; a path or a GPU that fails while all are inside looks the same from here.
    ## Check by hand
    elements x bytes per element / bandwidth, against Timeout(ms); the line's time minus "ran for".
    ## When it is harmless
    Always: it explains, another finding accuses.
    """
    reported: set[tuple[str, str]] = set()
    for event in run.events:
        if event.signature != "torch.watchdog_timeout":
            continue
        elements, timeout_ms, ran_ms = (event.values.get(k, "") for k in ("numel_in", "timeout_ms", "ran_ms"))
        key = (event.values.get("op", ""), elements)
        if key in reported or not (elements.isdecimal() and timeout_ms.isdecimal()) or len(elements) > 15:
            continue
        reported.add(key)
        least, most = size_range(int(elements))
        needed = transfer_time_s(2 * most, SLOW_LINK_GB_PER_S)  # a ring sends nearly everything twice
        timeout_s = int(timeout_ms[:15]) / 1000
        if needed * FAR > timeout_s:
            continue
        since = None
        if event.time_s is not None and ran_ms.isdecimal() and len(ran_ms) < 15:
            since = clock_time(event.time_s - int(ran_ms) / 1000)
        default = default_timeout_of(timeout_s)
        yield Hit(
            values={
                "operation": event.values.get("op", None),
                "num_elements": f"{int(elements):,}",
                "size": f"{least / 1e9:.2f}-{most / 1e9:.2f} GB" if most >= 10**7 else f"{least}-{most} B",
                "needed": units.time(needed),
                "gb_per_s": f"{SLOW_LINK_GB_PER_S:g}",
                "timeout": f"{timeout_s:g}",
                "default": said("[[ ({meaning})]]", meaning=default),
                "since": since or None,
            },
            confidence=Confidence.CERTAIN,
            evidence=(Evidence(source=str(event.origin), text=event.text, time=clock_time(event.time_s)),),
            fault_time=since,
        )
        if len(reported) >= 4:
            return
