from allready.model import FaultClass
from tests.fleets import check, fleet
from tests.rules.collective.made_up import stage, state, stopped_at


def test_names_the_rank_that_still_imports_from_slow_storage() -> None:
    hung = stage("import", "hung", state(3, "disk", wchan="rpc_wait_bit_killable"), finished=(0, 1, 2))
    [hit] = check("COL008", fleet(2, collectives=stopped_at(hung))).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((3,), FaultClass.CPU_STUCK)
    assert "rpc_wait_bit_killable" in str(hit.values["doing"])


def test_names_the_rank_that_does_not_finish_its_own_copies() -> None:
    hung = stage("local", "hung", state(1, "disk"), finished=(0, 2, 3))
    [hit] = check("COL008", fleet(2, collectives=stopped_at(hung))).hits
    assert hit.culprits.ranks == (1,)


def test_a_rank_that_computes_is_busy() -> None:
    hung = stage("import", "hung", state(3, "running", cpu_s=1.0), finished=(0, 1, 2))
    [hit] = check("COL008", fleet(2, collectives=stopped_at(hung))).hits
    assert hit.fault_class is FaultClass.CPU_BUSY


def test_blames_nobody_when_all_nodes_are_slow_alike() -> None:
    hung = stage("import", "hung", *(state(r, "disk") for r in range(4)))
    [hit] = check("COL008", fleet(2, collectives=stopped_at(hung))).hits
    assert not hit.culprits


def test_a_stage_in_which_ranks_wait_for_each_other_is_another_matter() -> None:
    hung = stage("gloo_barrier", "hung", state(3), finished=(0, 1, 2))
    assert check("COL008", fleet(2, collectives=stopped_at(hung))).state == "clear"


def test_is_clear_when_every_stage_ended_well() -> None:
    assert check("COL008", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL008", fleet(2, collectives=None)).state == "not_checked"
