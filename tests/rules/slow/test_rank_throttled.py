from .moving import LOSSY, ask, late

HELD = {1: {"throttled_share": 0.6}}


def test_names_the_rank_that_a_quota_holds_back() -> None:
    [hit] = ask("SLW002", (late(1),), ranks=HELD).hits
    assert (hit.culprits.ranks, hit.values["throttled"]) == ((1,), "60%")
    assert ask("SLW006", (late(1),), ranks=HELD).state == "clear"


def test_with_the_cause_seen_a_smaller_loss_is_a_fault() -> None:
    assert ask("SLW002", (late(1, 0.14),), ranks=HELD).state == "hit"


def test_packets_sent_again_to_a_process_that_is_held_back_are_no_bad_link() -> None:
    lossy = {(2, 1): LOSSY[2, 1]}
    assert ask("SLW008", (late(1),), ranks=HELD, flows=lossy).state == "clear"
    assert ask("SLW009", (late(1),), ranks=HELD, flows=lossy).state == "clear"


def test_a_quota_that_makes_nobody_wait_is_not_told() -> None:
    assert ask("SLW002", ranks=HELD).state == "clear"


def test_a_slow_rank_without_a_quota_is_left_to_the_others() -> None:
    assert ask("SLW002", (late(1),)).state == "clear"
