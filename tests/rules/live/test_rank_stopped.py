"""LIV001."""

from allready.judging.engine import finding_of
from allready.judging.loading import load
from allready.model import Confidence, ProcessState
from tests.rules.live.made import NODES, ask, behind, mark, waiting


def test_names_the_stopped_rank_with_its_node() -> None:
    [hit] = ask("LIV001", behind(2, process_state=ProcessState.STOPPED, heartbeat_age_s=9.0)).hits
    assert (hit.culprits.ranks, hit.confidence, hit.fault_class) == ((2,), Confidence.CERTAIN, None)
    assert hit.values["who"] == "rank 2 (gpu1, pid 102)"
    assert hit.values["operation"] == "all_reduce #64"


def test_each_stopped_rank_has_a_step_of_its_own() -> None:
    late = {"process_state": ProcessState.STOPPED, "heartbeat_age_s": 9.0}
    for ranks in ((2,), (1, 2)):
        [hit] = ask("LIV001", *(behind(r, **late) for r in ranks)).hits
        steps = finding_of(load()["LIV001"], hit).remedies[1:]
        assert [(s.where, s.command) for s in steps] == [(f"gpu{NODES[r]}", f"kill -CONT {100 + r}") for r in ranks]


def test_names_a_rank_that_was_stopped_inside_the_operation() -> None:
    [hit] = ask("LIV001", waiting(3, process_state=ProcessState.STOPPED)).hits
    assert hit.culprits.ranks == (3,)


def test_waits_a_moment_for_those_who_wait_for_it_to_be_seen() -> None:
    """A group that was just made is not known yet by the name that the rank's records have."""
    from allready.judging.engine import run
    from allready.judging.loading import load
    from tests.rules.live.made import NODES, NOW, job, stack

    def look(stopped_s: float) -> str:
        nobody = [waiting(r, groups=(), phase="computing", site="", site_since_s=None) for r in NODES if r != 2]
        stopped = behind(2, process_state=ProcessState.STOPPED, heartbeat_age_s=stopped_s)
        stacks = tuple(stack(r, "user_code") for r in NODES)
        return run(load()["LIV001"], job(*nobody, stopped, stacks=stacks, live={"now_s": NOW})).state

    assert [look(s) for s in (1.0, 1.5, 2.5)] == ["clear", "clear", "hit"]


def test_a_rank_without_which_the_others_went_on_is_waited_for_by_nobody() -> None:
    """The runtime library's group of now has ranks 0, 1 and 3."""
    members = (mark(5, members=(0, 1, 3)),)
    inside = [waiting(r, epoch=2, groups=members) for r in (0, 1, 3)]
    outside = behind(2, epoch=1, process_state=ProcessState.STOPPED, heartbeat_age_s=9.0)
    assert ask("LIV001", *inside, outside).state == "clear"
    woken = behind(2, epoch=1)
    stopped = waiting(3, epoch=2, groups=members, process_state=ProcessState.STOPPED)
    assert ask("LIV001", *inside[:2], stopped, outside).hits[0].culprits.ranks == (3,)
    for code in ("LIV002", "LIV003"):
        assert ask(code, *inside, woken).state == "clear"


def test_a_short_pause_is_no_stop() -> None:
    from msgspec.structs import replace

    from allready.judging.engine import run
    from allready.judging.loading import load
    from tests.rules.live.made import job

    fleet = job(behind(2, process_state=ProcessState.STOPPED))
    assert fleet.live is not None
    before = job(behind(2)).live
    assert before is not None
    moving = replace(fleet.live, history={1: before.history[1][:-1]})
    assert run(load()["LIV001"], replace(fleet, live=moving)).state == "clear"


def test_blames_nobody_when_somebody_stopped_the_whole_job() -> None:
    assert ask("LIV001", *(waiting(r, process_state=ProcessState.STOPPED) for r in range(4))).state == "clear"


def test_a_traced_process_is_named_with_its_state() -> None:
    [hit] = ask("LIV001", behind(1, process_state=ProcessState.TRACED)).hits
    assert "tracing" in str(hit.values["what"])


def test_says_nothing_without_a_suspicion() -> None:
    assert ask("LIV001", behind(2, process_state=ProcessState.STOPPED), live={"since_s": None}).state == "clear"


def test_pulses_that_every_look_falls_into_are_no_stop() -> None:
    assert ask("LIV001", behind(2, process_state=ProcessState.STOPPED, heartbeat_age_s=0.3)).state == "clear"
