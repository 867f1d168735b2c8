from allready.judging.engine import judge
from allready.judging.loading import load
from allready.model import Severity
from tests.fleets import check, fleet
from tests.rules.collective.made_up import stage, state, stopped_at


def test_names_the_stopped_rank_and_not_those_that_wait_for_it() -> None:
    hung = stage("sweep", "hung", state(3, "stopped"), entered=(0, 1, 2), size_bytes=2**20, iteration=3)
    [hit] = check("COL001", fleet(2, collectives=stopped_at(hung))).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((3,), (1,))
    assert hit.values["stage"] == "sweep (1 MiB, #3)"
    assert hit.values["ranks"] == "3 (gpu1, pid 1003)"
    assert hit.values["pids"] == "1003"
    assert any("stopped" in e.text and e.source == "rank 3" for e in hit.evidence)
    assert load()["COL001"].severity is Severity.BLOCKER


def test_blames_it_also_when_it_was_stopped_inside_the_collective() -> None:
    hung = stage("nccl_small", "hung", state(0), state(1, "stopped"), state(2), state(3, "running"))
    [hit] = check("COL001", fleet(2, collectives=stopped_at(hung))).hits
    assert hit.culprits.ranks == (1,)


def test_is_told_once_and_not_again_as_absent() -> None:
    hung = stage("store", "hung", state(3, "stopped"), state(2), entered=(0, 1))
    codes = [f.code for f in judge(fleet(2, collectives=stopped_at(hung)))[0] if f.code.startswith("COL")]
    assert codes == ["COL001"]


def test_sleeping_ranks_are_not_stopped() -> None:
    hung = stage("nccl_small", "hung", *(state(r) for r in range(4)))
    assert check("COL001", fleet(2, collectives=stopped_at(hung))).state == "clear"


def test_is_clear_when_every_stage_ended_well() -> None:
    assert check("COL001", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    outcome = check("COL001", fleet(2, collectives=None, why_not={"collectives": "nodes are missing"}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {None: "nodes are missing"})
