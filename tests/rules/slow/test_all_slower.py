from msgspec.structs import replace

from allready.model import NodeStatus
from tests.fleets import check
from tests.rules.link.wires import NOW

from .moving import SLOW_JOB, ask, late, moving


def test_everybody_slower_together_is_told_and_blames_nobody() -> None:
    [hit] = ask("SLW011", speed=(20.0, 8.0)).hits
    assert not hit.culprits


def test_a_slow_rank_or_link_is_the_better_answer() -> None:
    assert ask("SLW011", (late(1),), speed=(20.0, 8.0)).state == "clear"
    assert ask("SLW011", flows=SLOW_JOB, speed=(20.0, 8.0)).state == "clear"


def test_the_usual_ups_and_downs_are_not_told() -> None:
    assert ask("SLW011", speed=(20.0, 16.0)).state == "clear"


def test_a_job_that_becomes_faster_is_healthy() -> None:
    assert ask("SLW011", speed=(8.0, 20.0)).state == "clear"


def test_a_save_for_which_the_others_waited_is_no_slowness() -> None:
    """Two of the last seconds made no progress, and then it took a moment to come back."""
    fleet = moving()
    assert fleet.live is not None

    def after_a_save(word: NodeStatus) -> NodeStatus:
        late_by = 26 if word.time_s > NOW - 1 else 20 if word.time_s > NOW - 3 else 0
        return replace(word, ranks=tuple(replace(r, num_operations=r.num_operations - late_by) for r in word.ranks))

    live = replace(
        fleet.live,
        statuses={n: after_a_save(s) for n, s in fleet.live.statuses.items()},
        history={n: tuple(map(after_a_save, words)) for n, words in fleet.live.history.items()},
    )
    assert check("SLW011", replace(fleet, live=live)).state == "clear"
