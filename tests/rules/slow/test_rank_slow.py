import pytest
from msgspec.structs import replace

from allready.model import Lag
from allready.rules.slow._pace import usual_site
from tests.fleets import check

from .moving import EVEN, SLOW_JOB, ask, late, moving, paces, without_paces


def test_names_the_rank_that_all_others_wait_for() -> None:
    [hit] = ask("SLW006", (late(2),)).hits
    assert (hit.culprits.ranks, hit.values["share"]) == ((2,), "40%")


def test_a_rank_with_a_fifth_more_work_is_no_fault() -> None:
    lag = (late(0, 0.16),)
    assert ask("SLW006", lag).state == "clear"
    assert ask("SLW012", lag).state == "hit"


def test_imbalance_that_rotates_accuses_nobody() -> None:
    assert ask("SLW006", (paces(dict.fromkeys(range(4), 0.3)),)).state == "clear"


def test_three_of_ten_operations_may_be_chance() -> None:
    few = paces({0: 0.02, 1: 0.3, 2: 0.02, 3: 0.02}, {0: 2, 1: 4, 2: 2, 3: 2}, num_operations=10)
    assert ask("SLW006", (few,)).state == "clear"


def test_who_stays_behind_while_nobody_waits_is_not_slow() -> None:
    assert ask("SLW006", (replace(late(2), runs_behind=frozenset({2})),)).state == "clear"


def test_the_only_rank_that_has_data_left_is_not_slow() -> None:
    """DDP's `Join`: the others answer for it in no time."""
    through = {r: {"phase": "through"} for r in (0, 1, 3)}
    assert ask("SLW006", (late(2),), ranks=through).state == "clear"
    assert ask("SLW012", (late(2),), ranks=through).state == "hit"
    one = {0: {"phase": "through"}}
    assert ask("SLW006", (late(2),), ranks=one).state == "hit"


def test_says_how_long_the_others_wait_each_time() -> None:
    """Of all operations of an iteration most may be entered together: their median is not what the others wait."""
    [hit] = ask("SLW006", (replace(late(2), wait_s={2: 0.04}),)).hits
    assert hit.values["late"] == "40.0"


def test_half_of_the_ranks_cannot_be_the_slow_ones() -> None:
    assert ask("SLW006", (paces({0: 0.02, 1: 0.4, 2: 0.4, 3: 0.4}),)).state == "clear"


def test_two_ranks_of_one_slow_node_are_both_named() -> None:
    lag = paces({0: 0.01, 1: 0.02, 2: 0.4, 3: 0.35, 4: 0.01, 5: 0.02}, {2: 55, 3: 50})
    [hit] = ask("SLW006", (lag,), num_nodes=6).hits
    assert hit.culprits.ranks == (2, 3)


def test_where_all_wait_for_a_cpu_nobody_is_late_by_itself() -> None:
    crowd = {r: {"queued_share": 0.35} for r in range(4)}
    assert ask("SLW006", (late(2),), ranks=crowd).state == "clear"
    [hit] = ask("SLW006", (late(2),), ranks=crowd | {2: {"queued_share": 0.1}}).hits
    assert hit.culprits.ranks == (2,)
    torn = crowd | {2: {"queued_share": 0.8}}
    assert ask("SLW013", (late(2),), ranks=torn).state == "clear"


ROWS_AND_COLUMNS = {"0": (0, 1), "1": (2, 3), "2": (0, 2), "3": (1, 3)}
"""Groups of a 2 x 2 mesh."""


def pair(group: str, rank: int, share: float = 0.4) -> Lag:
    """One of the two members of a group is waited for."""
    other = next(r for r in ROWS_AND_COLUMNS[group] if r != rank)
    return paces({rank: share, other: 0.0}, {rank: 58, other: 0}, group=group)


def test_who_waits_for_a_slow_rank_of_its_row_is_not_slow_in_its_column() -> None:
    [hit] = ask("SLW006", (pair("1", 3), pair("2", 2, 0.39), pair("3", 3))).hits
    assert hit.culprits.ranks == (3,)


def test_ranks_that_wait_for_each_other_in_a_circle_of_groups_are_not_slow() -> None:
    circle = (pair("0", 0), pair("2", 2), pair("1", 3), pair("3", 1))
    assert ask("SLW006", circle).state == "clear"


def test_who_gets_out_of_an_operation_late_over_a_slow_link_is_a_victim() -> None:
    assert ask("SLW006", (late(3, 0.3),), flows=SLOW_JOB).state == "clear"
    [hit] = ask("SLW006", (late(0, 0.3),), flows=SLOW_JOB, inside={0: 0.3, 1: 0.8, 2: 0.8, 3: 0.8}).hits
    assert hit.culprits.ranks == (0,)


@pytest.mark.parametrize("phase", ["saving", "evaluating", "compiling"])
def test_who_is_seen_at_work_of_its_own_is_no_slow_rank(phase: str) -> None:
    assert ask("SLW006", (late(0),), ranks={0: {"phase": phase}}).state == "clear"


def test_a_job_that_stands_still_is_for_other_rules() -> None:
    fleet = moving((late(2),))
    assert fleet.live is not None
    assert check("SLW006", replace(fleet, live=replace(fleet.live, now_s=fleet.live.now_s + 30))).state == "clear"
    assert check("SLW006", replace(fleet, live=replace(fleet.live, is_starting=True))).state == "clear"


def test_is_clear_when_all_keep_pace_or_nothing_is_known() -> None:
    assert ask("SLW006", (EVEN,)).state == "clear"
    assert check("SLW006", without_paces(moving())).state == "clear"


def test_a_line_is_named_where_it_is_that_of_all() -> None:
    computing = {"phase": "computing"}
    sites = {r: {"site": site, **computing} for r, site in ((1, "a.py:1 f"), (2, "a.py:1 f"), (3, "b.py:2 g"))}
    job = moving((late(2),), ranks=sites).live
    assert job is not None
    assert usual_site(job, (1, 2)) == "a.py:1 f"
    assert usual_site(job, (1, 3)) is None
