from tests.fleets import check, fleet
from tests.rules.collective.made_up import stage, state, stopped_at

ERROR = "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory"


def test_names_the_rank_and_the_words_of_the_import() -> None:
    bad = stage("import", "failed", state(2, "exited", exit_code=1, error=ERROR), finished=(0, 1, 3))
    [hit] = check("COL004", fleet(2, collectives=stopped_at(bad))).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((2,), (1,))
    assert "libcudart" in str(hit.values["error"])


def test_blames_nobody_when_nothing_can_be_imported_anywhere() -> None:
    bad = stage("import", "failed", *(state(r, error="ModuleNotFoundError: No module named 'torch'") for r in range(4)))
    [hit] = check("COL004", fleet(2, collectives=stopped_at(bad))).hits
    assert not hit.culprits


def test_an_error_in_a_later_stage_is_another_matter() -> None:
    bad = stage("nccl_init", "failed", state(2, error=ERROR))
    assert check("COL004", fleet(2, collectives=stopped_at(bad))).state == "clear"


def test_is_clear_when_every_stage_ended_well() -> None:
    assert check("COL004", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL004", fleet(2, collectives=None)).state == "not_checked"
