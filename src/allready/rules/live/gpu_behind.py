from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, blame_hang
from allready.judging.live_status import mark_of, named
from allready.judging.majority import is_minority, majority_alike
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said, stated
from allready.model import (
    HOSTS,
    PROCESSES,
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    GroupMark,
    Hit,
    Live,
    RemedyStep,
    Severity,
    World,
)
from allready.rules.live._hits import MIN_WAIT_S, hit_of, shown


@Rule(
    code="LIV011",
    severity=Severity.ERROR,
    fault_class=FaultClass.HW_HANG,
    layer=Layer.STALL,
    title="A rank's GPU has not begun the operation that all ranks have launched",
    message="the {who:GPU/GPUs} of {who} {who:has/have} not begun [[{operation}|an operation]][[ for {waited} s]], "
    "and all ranks launched it: {who:it is/they are} held up by earlier work (a kernel that does not end)",
    remedy=(
        RemedyStep(
            explanation="look for throttling, retired pages and Xid errors of its GPU; reset or replace the "
            "GPU if the kernel does not end",
            each=HOSTS,
            where="{on}",
            command="nvidia-smi -q -d PERFORMANCE,PAGE_RETIREMENT; dmesg -T | grep -i xid",
        ),
        RemedyStep(
            explanation="the kernel that it runs is seen with cuda-gdb, or with CUDA_LAUNCH_BLOCKING=1 in a second run",
            each=PROCESSES,
            where="{on}",
            command="cuda-gdb -p {pid}",
        ),
    ),
)
def gpu_behind(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Where all ranks have launched the same operation, whose GPU runs something else.  The recorder tells it where starts
    are noted (`TORCH_NCCL_ENABLE_TIMING=1`): some have begun the operation and others have not.  Without that the GPU
    does (Hopper and newer): kernels of one operation occupy the same number of multiprocessors and warps on every rank,
    to a few thousandths, so that most ranks show one value and the rank that is held up another.
    ## Why it matters
    Seen from the CPU every rank is in the collective; only the GPU shows who is not.
    ## Check by hand
    `started` against `enqueued` in the flight-recorder dumps of all ranks; `nvidia-smi dmon --gpm-metrics=2,3`
    (multiprocessors and warps in use) for all of their GPUs.
    ## When it is harmless
    When the GPU has a lot of own work before the operation.  One whose memory or arithmetic units are busy is
    reported as waiting only, until --hang-after.
    """
    found = case.of(blame_hang)
    if found.kind != HangKind.LEVEL or found.wait is None or found.for_s < MIN_WAIT_S:
        return
    marks = {r: m for r in found.waiting if (m := mark_of(live, r, found.wait.progress.name)) is not None}
    seen = _by_recorder(marks, found.wait.operation.seq) or _by_gpu(live, marks, found.for_s)
    if seen is None:
        return
    is_spinning = seen.is_idle_otherwise
    soon_s = SOON_S + 3 * max(_period(live, r) for r in seen.behind)
    too_long = found.for_s >= (min(live.hang_after_s, soon_s) if is_spinning else live.hang_after_s)
    few = is_minority(len(seen.behind), len(marks)) or len(seen.behind) == 1
    yield hit_of(
        case,
        found,
        (),
        culprits=Culprits(ranks=seen.behind),
        values={"who": named(live, world, seen.behind)},
        severity=None if too_long else Severity.WARNING,
        confidence=Confidence.LIKELY if few and (is_spinning or too_long) else Confidence.POSSIBLE,
        evidence=(*seen.evidence, *shown(live, found, ()))[:12],
    )


SOON_S = 5.0
MEASURED_S = 2.5
"""Two samples of the counters lie within a wait of this length."""
SAME_SHARE = 0.02
"""Kernels of one operation: 0.181823, 0.181803 and 0.181818 of the multiprocessors of three H200s."""
OTHER_SHARE = 0.1
MIN_SHARE = 0.001
"""One of 132 multiprocessors is 0.0076; one without any has nothing to do, and is not held up by its GPU."""
WORKS_SHARE = 0.002
"""Of memory or arithmetic: waiting kernels show 0.000005, one that spins in registers the same."""


class _Shown(Struct, frozen=True, kw_only=True):
    """Who runs something else.  `is_idle_otherwise`: nothing shows that it is work."""

    behind: tuple[int, ...]
    evidence: tuple[Evidence, ...]
    is_idle_otherwise: bool = True


def _by_recorder(marks: Mapping[int, GroupMark], seq: int) -> _Shown | None:
    if not marks or any(m.started is None or m.started < 0 for m in marks.values()):
        return None
    behind = tuple(sorted(r for r, m in marks.items() if (m.started or 0) < seq))
    if not behind or len(behind) >= len(marks):
        return None
    return _Shown(
        behind=behind,
        evidence=tuple(
            stated(
                f"rank {r}",
                "launched {launched}, begun {begun}, completed {completed}",
                launched=m.enqueued,
                begun=m.started,
                completed=m.completed,
            )
            for r, m in sorted(marks.items())[:8]
        ),
    )


def _by_gpu(live: Live, ranks: Iterable[int], for_s: float) -> _Shown | None:
    """Most run one kernel, the others another; nothing where a GPU does not tell or is shared."""
    found = {r: s for r in sorted(ranks) if (s := live.ranks().get(r)) is not None}
    used = [(live.node_of_rank().get(r), s.gpu) for r, s in found.items()]
    if for_s < MEASURED_S or len(found) < 3 or len(set(used)) < len(used):
        return None
    shares: dict[int, tuple[float, float]] = {}
    for rank, status in found.items():
        if status.gpu_sm_share is None or status.gpu_warp_share is None or status.gpu_sm_share < MIN_SHARE:
            return None
        shares[rank] = status.gpu_sm_share, status.gpu_warp_share
    # A rank that is held up by work of its own differs from those that wait, and these do not differ.
    most = majority_alike(shares, _is_same, _is_other)
    if most is None or not most.odd:
        return None
    behind = most.odd
    return _Shown(
        behind=behind,
        evidence=tuple(
            stated(
                said("NVML, GPU {gpu} of rank {rank}", gpu=found[r].gpu, rank=r),
                "{sms} of the multiprocessors and {warps} of the warps in use[[, {power} W]]",
                sms=f"{shares[r][0]:.2%}",
                warps=f"{shares[r][1]:.3%}",
                power=None if found[r].gpu_power_w is None else f"{found[r].gpu_power_w:.0f}",
            )
            for r in (*behind, *(r for r in shares if r not in behind))[:8]
        ),
        is_idle_otherwise=all((data := found[r].gpu_data_share) is not None and data < WORKS_SHARE for r in behind),
    )


def _is_same(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return all(abs(a - b) <= SAME_SHARE * max(a, b) for a, b in zip(one, other, strict=True))


def _is_other(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return any(abs(a - b) >= OTHER_SHARE * max(a, b) for a, b in zip(one, other, strict=True))


def _period(live: Live, rank: int) -> float:
    return live.ranks()[rank].period_s or 0.0
