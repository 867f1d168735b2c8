from collections.abc import Iterator

from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, PathProbe, Reachability, RemedyStep, Severity
from allready.rules.net._chance import losing_links
from allready.rules.net._pace import slow_transfers
from allready.rules.net._packet_size import find_hole, passed_bytes, stuck_path
from allready.rules.net._paths import IPERF, Hop, back, common_node, judge_paths, links_of, path_evidence, path_hit
from allready.units import size

LARGE_BYTES = 2**20
MIN_GB_PER_S = 1e-3
SWEPT_BYTES = 2**16
"""From this size on an operation takes the time of its bytes, and not of its messages, on a path that is so slow."""


@Rule(
    code="NET008",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PATH,
    title="A TCP connection is established but barely transfers data",
    message="connections are established on {num_links} directions ({links}), but {stuck} did not arrive within "
    "{seconds} s (up to {passed} did)",
    remedy=(
        *IPERF,
        RemedyStep(
            explanation="check for errors and lost packets; if not even 64 B arrive, find what is in the way "
            "(proxy, stopped process)",
            where="both nodes",
            command="ip -s link; nstat -az TcpRetransSegs",
        ),
    ),
)
def path_stalls(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Paths on which a connection is established but a payload does not arrive before its deadline, although packets of
    full size pass (so it is not the MTU: NET002), or although not even the smallest payload did. If bytes moved, but
    below 1 MB/s, it is only a warning, since a very busy machine can cause that too, and none where NET017 reports the
    path; where the sweep of the whole job is as slow from 64 KiB on, it is an error, unless NET017 has one.
    ## Why it matters
    1 MiB within the deadline is less than a thousandth of what any cluster network carries. Collectives run at the pace
    of the slowest link.
    ## Check by hand
    `iperf3 -s` on one node, `iperf3 -c ADDRESS` and `iperf3 -R -c ADDRESS` on the other; `ethtool -S IFNAME`.
    ## When it is harmless
    When the link is known to be slow and the job tolerates it.
    """
    judged = case.of(judge_paths)
    compared = case.of(slow_transfers)
    is_sweep_slow = _is_sweep_slow(case)
    # NET017 and NET019 say why; a mere warning of NET017 is not enough where the job's collectives are as slow.
    compared = compared if compared is None or compared.is_clear or not is_sweep_slow else None
    reported = {*(compared.links if compared is not None else ()), *case.of(losing_links)}
    stalled: dict[Hop, PathProbe] = {}
    slow: dict[Hop, PathProbe] = {}
    for hop, paths in judged.data.items():
        path = stuck_path(paths)
        if path is not None:
            if find_hole(case, hop) is None:
                stalled[hop] = path
        elif hop[:2] not in reported and (barely := _moves_barely(paths)) is not None:
            slow[hop] = barely
    bad = {*stalled, *slow}
    fine = links_of(h for h in judged.fine if h not in bad and back(h) not in bad)
    of_slow = Severity.ERROR if is_sweep_slow else Severity.WARNING
    for found, severity in ((stalled, Severity.ERROR), (slow, of_slow)):
        if not found:
            continue
        worst = min(found.values(), key=passed_bytes)
        hit = path_hit(
            case,
            found,
            common_node(links_of(found), fine),
            Confidence.LIKELY,
            stuck=size(worst.stuck_bytes or LARGE_BYTES),
            passed=size(passed_bytes(worst)),
            seconds=f"{worst.duration_s:.1f}",
            address=worst.address,
            receiver=case.world.label(worst.dst),
            sender=case.world.label(worst.src),
            evidence=path_evidence(found.values()),
        )
        if worst.passed_bytes:
            yield replace(hit, severity=severity)
        else:
            yield replace(hit, severity=Severity.BLOCKER, fault_class=FaultClass.START_PATH)


def _moves_barely(paths: list[PathProbe]) -> PathProbe | None:
    """The path whose measured transfer moved, but not whole; None when any other carried as much in time."""
    slow = [p for p in paths if p.outcome == "ok" and (p.throughput_gb_per_s or 0.0) < MIN_GB_PER_S]
    slow = [p for p in slow if p.throughput_gb_per_s is not None]
    return slow[0] if slow and all(passed_bytes(p) < LARGE_BYTES for p in paths) else None


def _is_sweep_slow(case: Analysis) -> bool:
    """Whether the collectives of the whole job were as slow, at every size that was measured."""
    first = case.collectives.runs[0] if case.collectives is not None and case.collectives.runs else None
    measured = [p.busbw_gb_per_s for p in (first.points if first else ()) if p.size_bytes >= SWEPT_BYTES]
    return bool(measured) and max(measured) < MIN_GB_PER_S
