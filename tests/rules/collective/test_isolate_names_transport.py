from msgspec.structs import replace

from allready.model import CollectiveRun, Confidence, FaultClass
from tests.fleets import check, fleet, healthy_collectives
from tests.rules.collective.made_up import run, stage, state, stopped_at

HUNG = stage("nccl_small", "hung", state(0), state(1), world_size=2)


def isolated(variable: str, *, passes: bool) -> CollectiveRun:
    changes = {"label": f"isolate {variable}=1", "extra_env": {variable: "1"}}
    return replace(healthy_collectives(2).runs[0], **changes) if passes else run(HUNG, world_size=2, **changes)  # type: ignore[arg-type]


def test_names_the_transport_without_which_it_passes() -> None:
    tried = [
        isolated("NCCL_P2P_DISABLE", passes=True),
        isolated("NCCL_SHM_DISABLE", passes=False),
        isolated("NCCL_IB_DISABLE", passes=False),
    ]
    [hit] = check("COL011", fleet(1, collectives=stopped_at(HUNG, *tried, world_size=2))).hits
    assert (hit.values["transports"], hit.values["passes"]) == ("P2P", "NCCL_P2P_DISABLE=1")
    assert (hit.fault_class, hit.confidence, hit.culprits.nodes) == (FaultClass.HW_HANG, Confidence.LIKELY, (0,))


def test_infiniband_is_the_network() -> None:
    tried = [isolated("NCCL_P2P_DISABLE", passes=False), isolated("NCCL_IB_DISABLE", passes=True)]
    [hit] = check("COL011", fleet(1, collectives=stopped_at(HUNG, *tried, world_size=2))).hits
    assert (hit.values["transports"], hit.fault_class) == ("IB", FaultClass.NET_BROKEN)


def test_is_only_possible_when_it_passes_with_each_of_them_off() -> None:
    tried = [isolated("NCCL_P2P_DISABLE", passes=True), isolated("NCCL_SHM_DISABLE", passes=True)]
    [hit] = check("COL011", fleet(1, collectives=stopped_at(HUNG, *tried, world_size=2))).hits
    assert hit.confidence is Confidence.POSSIBLE


def test_counts_the_stage_that_failed_and_not_a_later_one() -> None:
    later = run(
        stage("sweep", "hung", world_size=2),
        world_size=2,
        label="isolate NCCL_P2P_DISABLE=1",
        extra_env={"NCCL_P2P_DISABLE": "1"},
    )
    [hit] = check("COL011", fleet(1, collectives=stopped_at(HUNG, later, world_size=2))).hits
    assert hit.values["transports"] == "P2P"


def test_is_clear_without_such_runs_or_without_a_failure() -> None:
    assert check("COL011", fleet(1)).state == "clear"
    assert check("COL011", fleet(1, collectives=stopped_at(HUNG, world_size=2))).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL011", fleet(2, collectives=None)).state == "not_checked"
