import pytest

from allready.judging.loading import load
from allready.model import Confidence, FaultClass, Origin, ProcessRecord, Role
from allready.model.fill import fill_steps
from tests.rules.runs import ask, at, death, event, group, one_missing, process, stack


def silent(*ranks: int, source: str = "flight recorder", why: str = "no dump") -> object:
    positions = {r: at(65, 64) for r in range(4) if r not in ranks}
    return group(positions, source, absent=dict.fromkeys(ranks, why))


def test_names_the_rank_without_a_dump() -> None:
    [hit] = ask("HNG002", progress=(silent(1),)).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((1,), FaultClass.CPU_STUCK)
    assert "no dump" in str(hit.values["why"])


def test_names_the_rank_that_does_not_answer_ras() -> None:
    [hit] = ask("HNG002", progress=(silent(1, source="ras", why="unresponsive"),)).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((1,), FaultClass.CPU_STUCK)


def test_its_stack_is_told() -> None:
    [hit] = ask("HNG002", progress=(silent(1),), stacks=(stack(1, "lock", pid=7),)).hits
    assert any("pyspy.7" in e.source for e in hit.evidence)
    assert hit.confidence is Confidence.CERTAIN


def test_the_remedy_has_its_host_and_its_process() -> None:
    known = ProcessRecord(rank=1, host="gpu04", pid=1037)
    [hit] = ask("HNG002", progress=(silent(1),), processes=(known,)).hits
    state, *_ = fill_steps(load()["HNG002"].steps, hit.values)
    assert (state.where, state.command) == ("gpu04", "ps -o pid,stat,wchan,lstart -p 1037")


def test_what_is_not_known_of_its_process_is_a_word_in_capitals() -> None:
    [hit] = ask("HNG002", progress=(silent(1),)).hits
    find, state, *_ = fill_steps(load()["HNG002"].steps, hit.values)
    assert (state.where, state.command) == ("", "ps -o pid,stat,wchan,lstart -p PID")
    assert find.explanation == "find the process of rank 1"


def test_several_silent_ranks_are_named_without_being_sure_of_the_class() -> None:
    six = group(
        {r: at(65, 64) for r in (0, 3, 4, 5)}, absent={1: "no dump", 2: "no dump"}, members=tuple(range(6)), size=6
    )
    [hit] = ask("HNG002", progress=(six,), expected_ranks=6).hits
    assert (hit.culprits.ranks, hit.confidence) == ((1, 2), Confidence.POSSIBLE)


def test_half_of_the_ranks_are_not_accused() -> None:
    assert ask("HNG002", progress=(silent(1, 2),)).state == "clear"


def test_who_is_known_to_be_behind_is_named_instead() -> None:
    assert ask("HNG002", progress=(one_missing(2),)).state == "clear"


def test_who_spoke_to_the_watchdog_is_not_silent() -> None:
    spoken = group({1: at(65, 64)}, "watchdog")
    assert ask("HNG002", progress=(silent(1), spoken)).state == "clear"


def test_a_death_explains_it() -> None:
    assert ask("HNG002", progress=(silent(1),), deaths=(death(1),)).state == "clear"


def test_a_file_that_may_just_be_missing_makes_it_only_possible() -> None:
    three = group({r: at(65, 64) for r in range(3)}, absent={3: "no dump"})
    waited = event("torch.watchdog_timeout", 0)
    [guess] = ask("HNG002", progress=(three,), events=(waited,)).hits
    [seen] = ask("HNG002", progress=(three,), events=(waited,), processes=(process(3),)).hits
    assert (guess.confidence, seen.confidence) == (Confidence.POSSIBLE, Confidence.LIKELY)


def test_a_rank_that_lacks_in_a_log_of_all_ranks_is_silent() -> None:
    three = group({r: at(65, 64) for r in (0, 1, 3)}, absent={2: "no dump"})
    together = tuple(event("torch.watchdog_timeout", r) for r in (0, 1, 3))
    [hit] = ask("HNG002", progress=(three,), events=together).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.LIKELY)


def test_a_closed_connection_tells_that_the_silent_one_ended() -> None:
    closed = event("nccl.peer_closed", 0, "Connection closed by remote peer", role=Role.CASCADE)
    [hit] = ask("HNG002", progress=(silent(1),), events=(closed,)).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((1,), FaultClass.DEAD)


def test_a_stack_shows_that_it_lived_whatever_closed() -> None:
    closed = event("nccl.peer_closed", 0, "Connection closed by remote peer", role=Role.CASCADE)
    [hit] = ask("HNG002", progress=(silent(1),), events=(closed,), stacks=(stack(1, "lock", pid=7),)).hits
    assert hit.fault_class is FaultClass.CPU_STUCK


@pytest.mark.parametrize(("ended_s", "is_silent"), [(1040.0, True), (1002.0, False), (None, False)])
def test_one_of_two_that_lived_on_and_said_nothing_is_silent(ended_s: float | None, is_silent: bool) -> None:
    two = group({0: at(65, 64)}, absent={1: "no dump"}, members=(0, 1), size=2)
    gave_up = event("torch.watchdog_timeout", 0, time_s=1000.0)
    ended = () if ended_s is None else (death(1, "signal", signal="SIGTERM", by_launcher=True, time_s=ended_s),)
    changes = {"progress": (two,), "deaths": ended, "expected_ranks": 2, "node_of_rank": {0: 0, 1: 1}}
    outcome = ask("HNG002", events=(gave_up,), **changes)
    assert [hit.culprits.ranks for hit in outcome.hits] == ([(1,)] if is_silent else [])
    spoke = event("torch.dump_signal", 1, time_s=1003.0)
    assert not ask("HNG002", events=(gave_up, spoke), **changes).hits


def test_output_in_a_file_of_its_own_may_lack() -> None:
    two = group({0: at(65, 64)}, absent={1: "no dump"}, members=(0, 1), size=2)
    ended = death(1, "signal", signal="SIGTERM", by_launcher=True, time_s=1040.0)
    gave_up = event("torch.watchdog_timeout", 0, time_s=1000.0, origin=Origin(source="rank0.log", line=1, rank=0))
    assert not ask("HNG002", progress=(two,), deaths=(ended,), expected_ranks=2, events=(gave_up,)).hits
