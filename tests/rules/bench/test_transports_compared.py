"""Which transports matter, by --isolate."""

from pathlib import Path
from typing import Any

import msgspec

from allready.judging.isolation import TRANSPORTS, isolated
from allready.model import CollectiveRun, Collectives, Hit
from allready.preflight.collectives.order_check import ALL_SWITCHES
from tests.fleets import check, fleet
from tests.rules.bench.made_up import isolated_run, isolated_runs

FIXTURE = Path(__file__).parents[2] / "fixtures" / "bench" / "h200_nccl_tests.json"


def hits(collectives: Collectives) -> list[Hit]:
    return list(check("BEN008", fleet(2, collectives=collectives)).hits)


def test_what_matters_is_told_from_what_does_not() -> None:
    found = isolated_runs(NCCL_P2P_DISABLE=40.0, NCCL_SHM_DISABLE=91.0, NCCL_IB_DISABLE=None, NCCL_NVLS_ENABLE=109.0)
    [hit] = hits(found)
    assert {k: hit.values[k] for k in ("carrying", "same", "failing")} == {
        "carrying": "P2P",
        "same": "SHM, NVLS",
        "failing": "IB",
    }
    assert [e.text for e in hit.evidence if e.source == "NCCL_IB_DISABLE=1"] == ["sweep hung"]


def test_what_varies_by_itself_proves_nothing() -> None:
    found = isolated_runs((80.0, 120.0), NCCL_P2P_DISABLE=150.0, NCCL_SHM_DISABLE=70.0)
    assert hits(found)[0].values["same"] == "P2P, SHM"


def test_without_such_runs_or_after_a_failure_nothing_is_said() -> None:
    silent = [
        Collectives(runs=(isolated_run("all", 100.0),)),
        Collectives(
            runs=(isolated_run("all", None), isolated_run("isolate NCCL_P2P_DISABLE=1", 100.0, NCCL_P2P_DISABLE="1"))
        ),
        isolated_runs((), NCCL_P2P_DISABLE=100.0),
        isolated_runs(),
    ]
    assert [isolated(collectives) for collectives in silent] == [None] * 4


def test_every_switch_has_a_name() -> None:
    assert set(TRANSPORTS) == set(ALL_SWITCHES)


def test_ranks_that_share_an_h200_use_none_of_them() -> None:
    """Recorded: sockets on loopback."""
    body: dict[str, Any] = msgspec.json.decode(FIXTURE.read_bytes())
    collectives = Collectives(runs=msgspec.convert(body["isolate"], tuple[CollectiveRun, ...]))
    [hit] = hits(collectives)
    assert (hit.values["carrying"], hit.values["same"], hit.values["failing"]) == (
        None,
        "P2P, SHM, IB, NVLS, GDR, NET",
        None,
    )
