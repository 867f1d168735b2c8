from tests.rules.desync.test_other_call import mismatch
from tests.rules.runs import ask, at, death, event, group, operation

TRUNCATED = event(
    "nccl.truncated", 0, "NET/Socket : peer 10.0.0.2<5> message truncated : receiving 9 bytes instead of 4"
)


def ahead(rank: int, by: int = 1) -> object:
    return group({r: at(65 + by if r == rank else 65, 64) for r in range(4)}, "watchdog")


def test_names_the_rank_that_is_ahead_when_sizes_did_not_match() -> None:
    [hit] = ask("DSY003", progress=(ahead(0),), events=(TRUNCATED,)).hits
    assert (hit.culprits.ranks, hit.values["ahead"], hit.values["usual"]) == ((0,), 66, 65)


def test_running_ahead_is_normal_while_nobody_complains() -> None:
    assert ask("DSY003", progress=(ahead(0),)).state == "clear"


def test_ras_itself_knows_of_the_invalid_usage() -> None:
    positions = {r: at(66 if r == 0 else 65, error="invalid usage" if r == 0 else None) for r in range(4)}
    assert ask("DSY003", progress=(group(positions, "ras"),)).state == "hit"


def test_blames_nobody_when_half_are_ahead() -> None:
    half = group({r: at(66 if r < 2 else 65, 64) for r in range(4)}, "watchdog")
    assert ask("DSY003", progress=(half,), events=(TRUNCATED,)).state == "clear"


def test_a_mismatch_that_is_seen_and_a_death_say_more() -> None:
    seen = mismatch((0,), operation(64, "broadcast"))
    assert ask("DSY003", progress=(ahead(0),), events=(TRUNCATED,), mismatches=(seen,)).state == "clear"
    assert ask("DSY003", progress=(ahead(0),), events=(TRUNCATED,), deaths=(death(1),)).state == "clear"
