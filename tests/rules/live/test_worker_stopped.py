"""LIV005."""

from allready.model import Confidence
from tests.rules.live.made import NOW, ask, behind, child, stack


def test_names_rank_and_child() -> None:
    [hit] = ask(
        "LIV005", behind(2), seen={2: {"children": (child("stopped"),)}}, stacks=(stack(2, "data_loading"),)
    ).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.CERTAIN)
    assert "777" in str(hit.values["what"])


def test_a_dead_worker_that_nobody_noticed_counts() -> None:
    seen = {2: {"children": (child("zombie"),)}}
    assert ask("LIV005", behind(2), seen=seen, stacks=(stack(2, "data_loading"),)).state == "hit"


def test_workers_that_run_are_work() -> None:
    seen = {2: {"children": (child("running"), child("sleeping"))}}
    assert ask("LIV005", behind(2), seen=seen, stacks=(stack(2, "data_loading"),)).state == "clear"


def test_a_dead_helper_of_another_kind_is_nobodys_fault() -> None:
    seen = {2: {"children": (child("zombie", role="other"),)}}
    assert ask("LIV005", behind(2), seen=seen, stacks=(stack(2, "cpu_work"),)).state == "clear"


def test_a_rank_that_only_just_came_there_is_given_time() -> None:
    seen = {2: {"children": (child("stopped"),)}}
    short = behind(2, site_since_s=NOW - 0.2)
    assert ask("LIV005", short, seen=seen, stacks=(stack(2, "data_loading"),)).state == "clear"
