from msgspec.structs import replace

from allready.judging.attempts import AttemptStarts, find_attempts, settle_attempts, with_appended
from allready.model import Closing, ClosingKind, Death, Event, Role
from tests.judging.made import death, event

FAILED = event("elastic.child_failed", 20, pid=9, time_s=100.0, node="node0")
AGAIN = event("elastic.child_failed", 60, pid=9, time_s=200.0, node="node0")
STARTED = event("elastic.workers_starting", 22, time_s=101.0)
TABLE = event("elastic.failure_table", 70, time_s=200.0)
FIRST = death(rank=2, line=10, text="ValueError: bad", time_s=99.0)
LINES = {"out.node0.log": 25}


def settled(events: list[Event], deaths: list[Death]) -> tuple[tuple[Event, ...], tuple[Death, ...]]:
    return settle_attempts(find_attempts(events, LINES), events, deaths)


def test_one_failure_with_its_table_is_the_last_attempt() -> None:
    table = event("elastic.failure_table", 30)
    assert find_attempts([FAILED, table], LINES).lines == {}
    assert settled([FAILED, table], [FIRST])[1] == (FIRST,)


def test_workers_that_start_after_a_failure_begin_another_attempt() -> None:
    assert find_attempts([FAILED, STARTED], LINES).lines == {"out.node0.log": 20}


def test_an_agent_that_does_not_give_up_lets_workers_write_on() -> None:
    assert find_attempts([FAILED], {"out.node0.log": 500}).lines == {"out.node0.log": 20}
    assert find_attempts([FAILED], {"out.node0.log": 25}).lines == {}  # cut short
    assert find_attempts([FAILED, TABLE], {"out.node0.log": 500}).lines == {}


def test_what_lies_in_an_earlier_attempts_folder_is_over() -> None:
    names = [
        f"logs/run_{run}/attempt_{attempt}/{rank}/stderr.log" for run in "ab" for attempt in (0, 1) for rank in (0, 1)
    ]
    found = find_attempts([], dict.fromkeys([*names[:6], "attempt_7.log", "my_attempt_0/x.log"], 9))
    assert found.lines == dict.fromkeys(names[:2], 9)  # run b has one attempt


def test_other_nodes_that_write_on_in_one_log_are_no_new_attempt() -> None:
    waits = [event("torch.watchdog_timeout", 30 + i, rank=i, node="node1") for i in range(40)]
    assert find_attempts([FAILED, *waits], {"out.node0.log": 500}).lines == {}


def test_nameless_agents_that_all_gave_up_are_several() -> None:
    """Old releases print no pid: two nodes in one log of Slurm."""
    failed = [event("elastic.child_failed", line, time_s=100.0) for line in (20, 22)]
    tables = [event("elastic.failure_table", line) for line in (40, 60)]
    assert find_attempts([*failed, *tables], {"out.node0.log": 70}).lines == {}


def test_equal_tables_are_counted_in_the_first_of_them() -> None:
    failed = [event("elastic.child_failed", line, pid=None, node=None) for line in (20, 22)]
    tables = replace(event("elastic.failure_table", 40), count=2)
    assert find_attempts([*failed, tables], {"out.node0.log": 500}).lines == {}
    before = event("elastic.child_failed", 5, pid=None, node=None)  # of a run before, whose table was cut off
    assert find_attempts([before, *failed, tables], {"out.node0.log": 500}).lines == {"out.node0.log": 5}


def test_workers_that_failed_behind_an_agent_without_a_port_are_of_a_later_run() -> None:
    taken = event("store.address_in_use", 8)
    agent = replace(death(text="RuntimeError: The server socket has failed to listen", line=9), is_agents=True)
    failed = event("elastic.child_failed", 90)
    closing = Closing(origin=taken.origin, kind=ClosingKind.OPEN)
    assert with_appended(AttemptStarts(), [closing], [taken, failed], [agent]).lines == {"out.node0.log": 9}
    assert with_appended(AttemptStarts(), [closing], [taken], [agent]).lines == {}
    assert with_appended(AttemptStarts(), [closing], [failed], [agent]).lines == {}


def test_exceptions_before_all_steps_of_a_run_that_was_killed_are_of_another_run() -> None:
    before = death(text="RuntimeError: CUDA error: invalid device ordinal", line=9)
    killed = death(kind="signal", signal="SIGKILL", line=90)
    closing = Closing(
        origin=before.origin, kind=ClosingKind.MIDWAY, first_progress_line=20, progress_line=80, last_counts_line=70
    )
    assert with_appended(AttemptStarts(), [closing], [], [before, killed]).lines == {"out.node0.log": 9}
    gave_up = replace(killed, signal="SIGABRT")  # it may have lost the one that raised
    assert with_appended(AttemptStarts(), [closing], [], [before, gave_up]).lines == {}


def test_an_agent_that_was_ended_from_outside_did_not_go_on() -> None:
    told = event("elastic.death_signal", 25)
    assert find_attempts([FAILED, told], {"out.node0.log": 500}).lines == {}


def test_two_agents_in_one_log_are_not_two_attempts() -> None:
    other = event("elastic.child_failed", 60, pid=10, time_s=100.5)
    assert find_attempts([FAILED, other, TABLE], LINES).lines == {}


def test_a_second_attempt_that_went_well_lets_the_first_be_told_only() -> None:
    events, [first] = settled([FAILED, STARTED], [FIRST])
    assert first.earlier
    assert events[0].role is Role.CASCADE


def test_the_last_attempt_decides_when_it_failed_of_its_own() -> None:
    last = death("signal", rank=1, line=60, signal="SIGKILL", time_s=200.0)
    _, deaths = settled([FAILED, STARTED, AGAIN, TABLE], [FIRST, last])
    assert [d.earlier for d in deaths] == [True, False]


def test_a_hang_of_the_last_attempt_decides_too() -> None:
    waited = event("torch.watchdog_timeout", 50, rank=0, time_s=190.0)
    _, [first] = settled([FAILED, STARTED, waited, AGAIN, TABLE], [FIRST])
    assert first.earlier


def test_an_attempt_that_never_got_connected_is_a_consequence_of_the_first() -> None:
    refused = event("gloo.peer_is_loopback", 40)
    gone = death("exit", rank=0, line=60, exit_code=1, time_s=200.0)
    events, [first, last] = settled([FAILED, STARTED, refused, AGAIN, TABLE], [FIRST, gone])
    assert not first.earlier
    assert last.is_collective_error
    assert next(e for e in events if e.signature == "gloo.peer_is_loopback").role is Role.CASCADE


def test_other_files_of_the_node_go_by_time() -> None:
    early = event("cuda.out_of_memory", 5, "rank1.log", time_s=90.0, node="node0")
    late = event("cuda.out_of_memory", 9, "rank1.log", time_s=150.0, node="node0")
    attempts = find_attempts([FAILED, STARTED], LINES)
    assert attempts.is_over("rank1.log", 5, "node0", early.time_s)
    assert not attempts.is_over("rank1.log", 9, "node0", late.time_s)
    assert not attempts.is_over("rank1.log", 5, "node1", early.time_s)
