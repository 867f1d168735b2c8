from allready.model import FaultClass
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.collective.made_up import stage, state, stopped_at

OWN = "torch.distributed.DistBackendError: NCCL error: unhandled system error; failed to extend /dev/shm/nccl-x"
ECHOES = [
    "RuntimeError: Connection closed by peer [10.0.0.1]:3000",
    "RuntimeError: [gloo/pair.cc] Read error [10.0.0.1]:3000: Connection reset by peer",
    "torch.distributed.DistBackendError: ncclRemoteError: A call failed possibly due to a network error",
    "RuntimeError: [2] is setting up NCCL communicator ... wait timeout after 600000ms",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "socketProgress: Connection closed by remote peer",
]


@cases("echo", ECHOES)
def test_names_the_rank_with_an_error_of_its_own(echo: str) -> None:
    failed = stage("nccl_init", "failed", state(1, error=OWN), state(0, error=echo), state(2, error=echo))
    [hit] = check("COL003", fleet(2, collectives=stopped_at(failed))).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((1,), (0,))
    assert "/dev/shm" in str(hit.values["error"])


def test_trusts_whoever_saw_which_error_was_first() -> None:
    errors = {0: "ValueError: a strange echo", 1: OWN, 2: "KeyError: another one"}
    failed = stage("nccl_init", "failed", *(state(r, error=e) for r, e in errors.items()), culprits=(1,))
    [hit] = check("COL003", fleet(2, collectives=stopped_at(failed))).hits
    assert hit.culprits.ranks == (1,)


def test_blames_nobody_when_all_failed_with_the_same_error() -> None:
    failed = stage("nccl_init", "failed", *(state(r, error=f"ncclInvalidUsage: rank {r} refuses") for r in range(4)))
    [hit] = check("COL003", fleet(2, collectives=stopped_at(failed))).hits
    assert not hit.culprits


def test_names_the_odd_one_when_all_failed() -> None:
    errors = ["ValueError: no", "KeyError: 'x'", "ValueError: no", "ValueError: no"]
    failed = stage("nccl_init", "failed", *(state(r, error=e) for r, e in enumerate(errors)))
    [hit] = check("COL003", fleet(2, collectives=stopped_at(failed))).hits
    assert hit.culprits.ranks == (1,)


def test_names_the_node_when_there_is_only_one() -> None:
    failed = stage("nccl_init", "failed", *(state(r, error="same", node_rank=0) for r in range(2)), world_size=2)
    [hit] = check("COL003", fleet(1, collectives=stopped_at(failed, world_size=2))).hits
    assert (hit.culprits.nodes, hit.culprits.ranks) == ((0,), ())


def test_a_store_that_cannot_be_reached_is_a_matter_of_paths() -> None:
    states = [state(rank, error="10.0.0.1:40001: No route to host", is_store_unreachable=True) for rank in (2, 3)]
    failed = stage("store", "failed", *states)
    [hit] = check("COL003", fleet(2, collectives=stopped_at(failed))).hits
    assert hit.fault_class is FaultClass.START_PATH


def test_a_rank_that_only_echoes_is_no_failure_of_its_own() -> None:
    failed = stage("sweep", "failed", *(state(r, error=ECHOES[0]) for r in range(4)))
    assert check("COL003", fleet(2, collectives=stopped_at(failed))).state == "clear"


def test_is_clear_when_every_stage_ended_well() -> None:
    assert check("COL003", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL003", fleet(2, collectives=None)).state == "not_checked"
