from .moving import EVEN, ask, late

CROWD = {r: {"queued_share": 0.4} for r in range(4)}


def test_where_all_wait_for_a_cpu_the_late_one_is_a_remark_that_blames_nobody() -> None:
    [hit] = ask("SLW014", (late(2),), ranks=CROWD).hits
    assert not hit.culprits
    assert (hit.values["queued"], hit.values["share"]) == ("40%", "40%")


def test_a_rank_that_gets_its_cpus_is_late_by_itself() -> None:
    assert ask("SLW014", (late(2),), ranks=CROWD | {2: {"queued_share": 0.1}}).state == "clear"


def test_a_rank_that_a_quota_holds_back_is_accused_all_the_same() -> None:
    quota = CROWD | {2: {"queued_share": 0.4, "throttled_share": 0.5}}
    assert ask("SLW014", (late(2),), ranks=quota).state == "clear"
    assert ask("SLW002", (late(2),), ranks=quota).state == "hit"


def test_is_clear_where_nobody_is_late_or_cpus_are_free() -> None:
    assert ask("SLW014", (EVEN,), ranks=CROWD).state == "clear"
    assert ask("SLW014", (late(2),), ranks={r: {"queued_share": 0.1} for r in range(4)}).state == "clear"
    assert ask("SLW014", (late(2),)).state == "clear"
