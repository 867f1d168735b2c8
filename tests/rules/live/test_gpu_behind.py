"""LIV011."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from allready.model import Confidence, RankStatus, Severity
from tests.cases import cases
from tests.rules.live.made import ask, mark, waiting

BEGUN = [waiting(r, groups=(mark(64, started=64),)) for r in range(4)]
HELD = waiting(2, groups=(mark(64, started=63),))


def test_names_the_rank_whose_gpu_has_not_begun() -> None:
    [hit] = ask("LIV011", *BEGUN, HELD).hits
    assert (hit.culprits.ranks, hit.severity) == ((2,), None)


def test_at_first_it_only_waits() -> None:
    young = [waiting(r, groups=(mark(64, started=63 if r == 2 else 64, waiting_s=3.0),)) for r in range(4)]
    [hit] = ask("LIV011", *young).hits
    assert hit.severity is Severity.WARNING


def test_all_begun_is_another_matter() -> None:
    assert ask("LIV011", *BEGUN).state == "clear"


def test_a_recorder_that_does_not_tell_accuses_nobody() -> None:
    assert ask("LIV011").state == "clear"


def test_nobody_is_behind_when_all_are() -> None:
    assert ask("LIV011", *(waiting(r, groups=(mark(64, started=63),)) for r in range(4))).state == "clear"


H200_WAITS = {"gpu_sm_share": 0.181823, "gpu_warp_share": 0.045456, "gpu_data_share": 0.000004, "gpu_busy_share": 1.0}
H200_SPINS = {"gpu_sm_share": 0.007576, "gpu_warp_share": 0.000118, "gpu_data_share": 0.000004, "gpu_busy_share": 1.0}
H200_WORKS = {"gpu_sm_share": 0.99138, "gpu_warp_share": 0.848, "gpu_data_share": 0.8762, "gpu_busy_share": 1.0}
"""As measured: ranks wait in an all-reduce, one is in `torch.cuda._sleep`, or in a long row of multiplications."""


def on_gpus(shares: Mapping[int, Mapping[str, float]], **changes: Any) -> list[RankStatus]:
    return [
        waiting(r, gpu=r % 2, gpu_power_w=118.0, **(H200_WAITS | dict(shares.get(r, {}))), **changes) for r in range(4)
    ]


def test_names_the_gpu_that_runs_another_kernel_than_the_others() -> None:
    [hit] = ask("LIV011", *on_gpus({2: H200_SPINS})).hits
    assert (hit.culprits.ranks, hit.severity, hit.confidence) == ((2,), None, Confidence.LIKELY)
    assert hit.evidence[0].source == "NVML, GPU 0 of rank 2"
    assert "0.76% of the multiprocessors" in hit.evidence[0].text
    assert len(hit.evidence) >= 4


def test_a_gpu_that_computes_is_waited_for() -> None:
    [hit] = ask("LIV011", *on_gpus({2: H200_WORKS})).hits
    assert (hit.culprits.ranks, hit.severity, hit.confidence) == ((2,), Severity.WARNING, Confidence.POSSIBLE)


def test_a_gpu_that_does_not_tell_whether_it_computes_is_waited_for() -> None:
    unknown = {k: v for k, v in H200_SPINS.items() if k != "gpu_data_share"}
    ranks = [replace(r, gpu_data_share=None) if r.rank == 2 else r for r in on_gpus({2: unknown})]
    [hit] = ask("LIV011", *ranks).hits
    assert (hit.severity, hit.confidence) == (Severity.WARNING, Confidence.POSSIBLE)


def test_a_counter_of_a_thousandth_more_is_the_same_kernel() -> None:
    assert ask("LIV011", *on_gpus({1: H200_WAITS | {"gpu_sm_share": 0.1820}})).state == "clear"


@cases(
    "other",
    [
        {1: H200_SPINS, 2: H200_SPINS},  # two against two
        {2: H200_SPINS | {"gpu_sm_share": None}},  # it does not tell
        {2: H200_SPINS | {"gpu_sm_share": 0.0, "gpu_warp_share": 0.0}},  # it runs nothing
        {1: H200_WAITS | {"gpu_sm_share": 0.19}, 2: H200_SPINS},  # not the same and not another
    ],
)
def test_gpus_that_do_not_tell_accuse_nobody(other: dict[int, dict[str, float]]) -> None:
    assert ask("LIV011", *on_gpus(other)).state == "clear"


def test_ranks_on_one_gpu_are_not_told_apart() -> None:
    shared = [replace(rank, gpu=0) for rank in on_gpus({2: H200_SPINS})]
    assert ask("LIV011", *shared).state == "clear"


def test_counters_from_before_the_wait_do_not_count() -> None:
    young = {"groups": (mark(64, waiting_s=2.0),)}
    assert ask("LIV011", *on_gpus({2: H200_SPINS}, **young)).state == "clear"
