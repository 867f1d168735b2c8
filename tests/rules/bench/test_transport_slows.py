"""A transport without which the collectives are faster."""

from allready.model import Collectives, Hit
from tests.fleets import check, fleet
from tests.rules.bench.made_up import isolated_runs


def hits(collectives: Collectives) -> list[Hit]:
    return list(check("BEN007", fleet(2, collectives=collectives)).hits)


def test_a_transport_without_which_it_is_faster_is_named() -> None:
    found = isolated_runs(NCCL_P2P_DISABLE=150.0, NCCL_SHM_DISABLE=100.0)
    [hit] = hits(found)
    assert (hit.values["transport"], hit.values["percent"], hit.values["setting"]) == (
        "P2P",
        "50",
        "NCCL_P2P_DISABLE=1",
    )


def test_each_of_several_is_named() -> None:
    found = hits(isolated_runs(NCCL_P2P_DISABLE=150.0, NCCL_NET_GDR_LEVEL=120.0, NCCL_SHM_DISABLE=105.0))
    assert [hit.values["transport"] for hit in found] == ["P2P", "GDR"]


def test_a_transport_without_which_it_is_slower_or_fails_slows_nothing() -> None:
    assert hits(isolated_runs(NCCL_P2P_DISABLE=40.0, NCCL_SHM_DISABLE=109.0, NCCL_IB_DISABLE=None)) == []


def test_what_varies_by_itself_proves_nothing() -> None:
    assert hits(isolated_runs((80.0, 120.0), NCCL_P2P_DISABLE=150.0)) == []
