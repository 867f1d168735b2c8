from allready.judging.loading import load
from allready.model import Severity
from tests.fleets import check, fleet
from tests.rules.collective.made_up import stopped_at
from tests.rules.collective.test_isolate_names_transport import HUNG, isolated


def test_takes_the_transports_off_the_list() -> None:
    tried = [isolated("NCCL_P2P_DISABLE", passes=False), isolated("NCCL_SHM_DISABLE", passes=False)]
    [hit] = check("COL012", fleet(1, collectives=stopped_at(HUNG, *tried, world_size=2))).hits
    assert hit.values["tried"] == "NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1"
    assert load()["COL012"].severity is Severity.INFO


def test_says_nothing_when_one_of_them_matters() -> None:
    tried = [isolated("NCCL_P2P_DISABLE", passes=True), isolated("NCCL_SHM_DISABLE", passes=False)]
    assert check("COL012", fleet(1, collectives=stopped_at(HUNG, *tried, world_size=2))).state == "clear"


def test_is_clear_without_such_runs_or_without_a_failure() -> None:
    assert check("COL012", fleet(1)).state == "clear"
    assert check("COL012", fleet(1, collectives=stopped_at(HUNG, world_size=2))).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL012", fleet(2, collectives=None)).state == "not_checked"
