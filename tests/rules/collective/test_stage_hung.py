from allready.judging.engine import judge
from allready.judging.loading import load
from allready.model import Confidence, FaultClass
from tests.fleets import check, fleet, healthy_reach
from tests.rules.collective.made_up import stage, state, stopped_at

ALL = [state(r) for r in range(4)]


def test_blames_no_rank_when_all_came_and_nothing_moved() -> None:
    hung = stage("sweep", "hung", *ALL, size_bytes=64 * 2**20, iteration=0)
    [hit] = check("COL009", fleet(2, collectives=stopped_at(hung))).hits
    assert not hit.culprits
    assert hit.confidence is Confidence.LIKELY
    assert (hit.values["stage"], hit.values["num_nodes"]) == ("sweep (64 MiB, #0)", 2)
    assert load()["COL009"].fault_class is FaultClass.NET_BROKEN


def test_inside_one_node_it_is_the_gpus() -> None:
    hung = stage("nccl_small", "hung", *ALL[:2], world_size=2)
    [hit] = check("COL009", fleet(1, collectives=stopped_at(hung, world_size=2))).hits
    assert (hit.fault_class, hit.confidence) == (FaultClass.HW_HANG, Confidence.POSSIBLE)


def test_gives_way_to_a_path_that_is_known_to_be_broken() -> None:
    broken = healthy_reach(2, paths={(0, 1): {"outcome": "filtered"}, (1, 0): {"outcome": "filtered"}})
    hung = stage("nccl_init", "hung", *ALL)
    findings, _ = judge(fleet(2, reach=broken, collectives=stopped_at(hung)))
    codes = [f.code for f in findings]
    assert "COL009" in codes
    assert codes[0] == "COL009" or codes[0][:3] in {"NET", "POR"}


def test_shows_the_words_of_a_victim_when_all_failed() -> None:
    said = [state(r, "exited", exit_code=1, error="RuntimeError: Timed out waiting 30000ms") for r in range(4)]
    [hit] = check("COL009", fleet(2, collectives=stopped_at(stage("gloo_barrier", "failed", *said)))).hits
    assert "Timed out waiting" in str(hit.values["how"])


def test_the_store_is_a_matter_of_paths_at_the_start() -> None:
    said = state(2, error="the store of rank 0 cannot be reached at 10.0.0.1:40000: Connection timed out")
    [hit] = check("COL009", fleet(2, collectives=stopped_at(stage("store", "failed", said)))).hits
    assert hit.fault_class is FaultClass.START_PATH


def test_names_the_node_that_alone_cannot_reach_the_store() -> None:
    said = state(4, error="the store of rank 0 cannot be reached at 10.0.0.1:40000: Connection timed out")
    cut_off = stage("store", "failed", said, world_size=6, finished=(0, 1, 2, 3), culprits=(4, 5))
    [hit] = check("COL009", fleet(3, collectives=stopped_at(cut_off, world_size=6))).hits
    assert (hit.culprits.nodes, hit.culprits.ranks, hit.culprits.links) == ((2,), (4, 5), ((2, 0),))


def test_gives_way_to_a_rank_that_did_not_come() -> None:
    hung = stage("nccl_small", "hung", state(3), entered=(0, 1, 2))
    assert check("COL009", fleet(2, collectives=stopped_at(hung))).state == "clear"


def test_is_clear_when_every_stage_ended_well() -> None:
    assert check("COL009", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL009", fleet(2, collectives=None)).state == "not_checked"
