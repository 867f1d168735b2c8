"""How sentences name ranks and tell of waits."""

from allready.judging.engine import judge
from allready.judging.places import num_ranks
from allready.judging.run_signs import who
from allready.model import RunEvidence
from allready.model.fill import UNKNOWN, in_english
from allready.text.catalog import say
from tests.cases import cases
from tests.rules.runs import at, event, group, one_missing, process, run_fleet, stack

NODES = {0: 0, 1: 0, 2: 1, 3: 1, 4: 1}
HOSTS = {"gpu01": 0, "gpu02": 1}
SAME = {"node0": 0, "node1": 1}


def run(
    names: dict[str, int] | None = None, *, is_numbered: bool = True, pids: dict[int, int] | None = None
) -> RunEvidence:
    processes = tuple(process(r, host="gpu04", pid=pid) for r, pid in (pids or {}).items())
    return RunEvidence(
        node_of_rank=NODES, node_numbers=HOSTS if names is None else names, is_numbered=is_numbered, processes=processes
    )


@cases(
    ("evidence", "ranks", "text"),
    [
        (run(), (), None),
        (run(), (2,), "rank 2 (gpu02)"),
        (run(SAME), (2,), "rank 2 (node 1)"),
        (run(SAME), (1, 2, 3), "rank 1-3 (node 0, 1)"),
        (run(SAME, is_numbered=False), (2,), "rank 2 (node1)"),
        (run(), (0, 2), "rank 0,2 (gpu01, gpu02)"),
        (run(pids={2: 1037}), (2,), "rank 2 (gpu04, pid 1037)"),
        (run(pids={2: 1037}), (0, 2), "rank 0 (gpu01), rank 2 (gpu04, pid 1037)"),
        (run(pids={2: 1037}), (0, 1, 2, 3), "rank 0-3 (gpu01, gpu02)"),
        (RunEvidence(processes=(process(3, host=None, pid=8),)), (3,), "rank 3 (pid 8)"),
        (RunEvidence(stacks=(stack(5, "sleep", pid=8),)), (5,), "rank 5 (pid 8)"),
        (RunEvidence(), (5, 6), "rank 5,6"),
    ],
)  # fmt: skip
def test_few_ranks_are_named_with_host_and_process(evidence: RunEvidence, ranks: tuple[int, ...], text: str) -> None:
    assert who(evidence, ranks) == text


def test_of_a_process_that_was_started_again_no_pid_is_given() -> None:
    again = RunEvidence(processes=(process(2, host=None, pid=7), process(2, host=None, pid=8)))
    assert who(again, (2,)) == "rank 2"


def test_who_waits_is_counted() -> None:
    assert [in_english(num_ranks(ranks)) for ranks in ((), (4,), (4, 5), range(63))] == [
        UNKNOWN, "rank 4", "2 ranks", "63 ranks"
    ]  # fmt: skip


def test_a_missing_rank_is_named_with_the_call_the_number_of_waiting_ranks_and_their_wait() -> None:
    gave_up = [
        event("torch.watchdog_timeout", r, time_s=1612.0, values={"ran_ms": ms, "seq": "64"})
        for r, ms in ((0, "600012"), (1, "600053"))
    ]
    other = event("torch.watchdog_timeout", 3, time_s=1612.0, values={"ran_ms": "900000", "seq": "63"})
    processes = (process(2, host="gpu04", pid=1037),)
    fleet = run_fleet(progress=(one_missing(2),), events=(*gave_up, other), processes=processes)
    [found] = [f for f in judge(fleet)[0] if f.code == "HNG001"]
    assert found.message == "rank 2 (gpu04, pid 1037) never entered all_reduce #64; 3 ranks waited 600 s for it"
    assert say(found, "message", "zh") == (
        "rank 2 (gpu04, pid 1037) 始终没有进入 all_reduce #64；3 个 rank 等了 600 秒"
    )


@cases(
    ("groups", "text"),
    [
        ((one_missing(2),), "all_reduce #64;"),
        (
            (group({r: at(63) if r == 2 else at(65, 64) for r in range(4)}, group="7", label="TP"),),
            "all_reduce #64 (TP);",
        ),
        ((one_missing(2), group({0: at(9), 1: at(9)}, group="7", label="TP", members=(0, 1))), "#64 (default_pg);"),
    ],
)
def test_the_group_is_named_where_that_tells_something(groups: tuple[object, ...], text: str) -> None:
    fleet = run_fleet(progress=groups)
    [found] = [f for f in judge(fleet)[0] if f.code == "HNG001"]
    assert text in found.message
