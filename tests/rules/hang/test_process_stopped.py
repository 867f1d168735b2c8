from allready.evidence.sniff import STACKS, kind_of
from allready.evidence.stacks.meaning import describe
from allready.evidence.stacks.read import read_stacks
from allready.judging.engine import finding_of
from allready.judging.loading import load
from allready.judging.values import MAX_COMMANDS
from allready.live.node.stacks import only_state
from allready.text.catalog import say_remedies
from tests.rules.runs import ask, at, death, group, stack

RUNS = (stack(0, "in_collective", pid=10), stack(2, "unreadable", pid=12))


def test_names_the_rank_that_is_stopped_beside_others_that_run() -> None:
    [hit] = ask("HNG016", stacks=(*RUNS, stack(1, "stopped", pid=11))).hits
    assert hit.culprits.ranks == (1,)


def test_each_stopped_rank_has_a_step_of_its_own() -> None:
    for num in (1, 2, 40):
        stopped = tuple(stack(r, "stopped", pid=1000 + r) for r in range(num))
        [hit] = ask("HNG016", stacks=(*stopped, stack(num, "in_collective", pid=10))).hits
        finding = finding_of(load()["HNG016"], hit)
        shown = min(num, MAX_COMMANDS)
        assert [r.command for r in finding.remedies[1:]] == [f"kill -CONT {1000 + r}" for r in range(shown)]
        assert ("stopped it," if num == 1 else "stopped them,") in finding.remedies[0].explanation
        assert "rank 0" in say_remedies(finding, "zh")[1].explanation


def test_a_job_that_is_stopped_as_a_whole_accuses_nobody() -> None:
    assert ask("HNG016", stacks=(stack(0, "stopped"), stack(1, "stopped"))).state == "clear"


def test_where_the_operation_is_known_or_a_process_ended_others_tell_it() -> None:
    stacks = (*RUNS, stack(1, "stopped", pid=11))
    late = group({0: at(5, 5), 1: at(4), 2: at(5, 5)}, members=(0, 1, 2))
    assert ask("HNG016", stacks=stacks, progress=(late,)).state == "clear"
    assert ask("HNG016", stacks=stacks, deaths=(death(2),)).state == "clear"


def test_a_process_whose_stack_cannot_be_read_is_written_and_read_with_its_state() -> None:
    for state, activity in (("stopped", "stopped"), ("traced", "stopped"), ("sleeping", "unreadable")):
        text = only_state(1, 4711, "gpu01", state).encode()
        assert kind_of(text) == STACKS
        [one] = read_stacks(text, "stacks.txt").stacks
        assert (one.rank, one.pid, describe(one).kind) == (1, 4711, activity)
