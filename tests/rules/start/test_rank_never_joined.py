from allready.model import CommRecord, Confidence, Origin, ProcessRecord, Role
from tests.rules.runs import ask, death, event, process


def joined(rank: int, *, completed: bool = False, nranks: int = 4) -> CommRecord:
    return CommRecord(comm=f"0x{rank}", rank=rank, nranks=nranks, init_started=True, init_completed=completed)


def test_names_who_never_began() -> None:
    [hit] = ask("STA001", processes=tuple(process(r, comms=(joined(r),)) for r in (0, 1, 3))).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.LIKELY)


def test_names_the_node_when_all_its_ranks_are_missing() -> None:
    [hit] = ask("STA001", processes=tuple(process(r, comms=(joined(r),)) for r in (0, 1))).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((2, 3), (1,))


def test_as_many_without_a_log_as_with_one_may_just_lack_their_logs() -> None:
    [hit] = ask("STA001", processes=tuple(process(r, comms=(joined(r),)) for r in (0, 1)), node_of_rank={}).hits
    assert (hit.culprits.ranks, hit.culprits.nodes, hit.confidence) == ((), (), Confidence.POSSIBLE)


def test_a_log_that_stops_while_every_process_initializes_names_nobody() -> None:
    def started(*ranks: int, others: str) -> tuple[ProcessRecord, ...]:
        return tuple(
            process(r, comms=(joined(r),) if r in ranks else (), last_line_class="init" if r in ranks else others)
            for r in range(4)
        )

    assert ask("STA001", processes=started(0, 1, others="init")).state == "clear"
    assert ask("STA001", processes=started(0, 1, others="other")).hits
    assert ask("STA001", processes=started(0, 1, 3, others="init")).hits


def test_with_one_log_of_many_nothing_is_sure() -> None:
    [hit] = ask("STA001", processes=(process(0, comms=(joined(0),)),)).hits
    assert hit.confidence is Confidence.POSSIBLE


def test_a_communicator_that_completed_misses_nobody() -> None:
    assert ask("STA001", processes=(process(0, comms=(joined(0, completed=True),)),)).state == "clear"


def test_a_death_explains_it() -> None:
    assert ask("STA001", processes=(process(0, comms=(joined(0),)),), deaths=(death(1),)).state == "clear"


def test_who_failed_by_itself_waited_for_nobody() -> None:
    """NCCL's codes 1 to 5 are of the process that writes them; 6, and what failed while it connected, are not."""
    home = Origin(source="out.log", line=9, host="gpu0", pid=7, rank=0)

    def found(signature: str, last: str = "error", **values: str) -> bool:
        own = event(signature, origin=home, values=values, role=Role.CASCADE)
        one = process(0, host="gpu0", pid=7, comms=(joined(0),), last_line_class=last)
        return bool(ask("STA001", processes=(one,), events=(own,)).hits)

    assert not found("nccl.back_trace", file="transport/net.cc:700", result="2")
    assert not found("nccl.back_trace", file="init.cc:1500", result="3")
    assert not found("nccl.result_internal")
    assert found("nccl.back_trace", file="init.cc:1500", result="6")
    assert found("nccl.back_trace", file="misc/socket.cc:57", result="2")
    assert found("nccl.back_trace", file="bootstrap.cc:300", result="3")
    assert found("nccl.result_remote")
    assert found("nccl.back_trace", "init", file="plugin/net.cc:30", result="2"), "a plugin was tried, and it went on"


def test_one_rank_alone_waits_for_nobody() -> None:
    assert ask("STA001", expected_ranks=1, processes=(process(0, comms=(joined(0, nranks=1),)),)).state == "clear"


def test_who_has_heard_of_all_ranks_misses_nobody() -> None:
    """NCCL writes how long its bootstrap took, and how many nodes there are, when every rank has answered."""
    for told in ({"phases_s": {"bootstrap total": 0.6}}, {"num_nodes": 2}):
        assert ask("STA001", processes=(process(0, comms=(joined(0),), **told),)).state == "clear"
    of_a_smaller_one = process(0, comms=(joined(0), joined(0, nranks=2)), phases_s={"bootstrap total": 0.6})
    assert ask("STA001", processes=(of_a_smaller_one,)).hits


def test_a_node_whose_launcher_had_to_end_its_processes_is_named() -> None:
    """For sure only where NCCL writes into the output: of files of its own that node's may lack."""
    ended = death(None, "signal", signal="SIGTERM", by_launcher=True, node="node1")
    for file, confidence in (("out.log", Confidence.LIKELY), ("nccl.0.log", Confidence.POSSIBLE)):
        begun = (process(0, comms=(joined(0, nranks=2),), sources=(file,)),)
        known = {"processes": begun, "expected_ranks": 2, "node_of_rank": {0: 0}}
        [hit] = ask("STA001", deaths=(ended,), **known).hits
        assert (hit.culprits.ranks, hit.culprits.nodes, hit.confidence) == ((1,), (1,), confidence)
    own = death(None, "signal", signal="SIGTERM", by_launcher=True, node="node0")
    [hit] = ask("STA001", deaths=(own,), **known).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.POSSIBLE)


def test_a_rank_that_its_launcher_had_to_end_ran() -> None:
    """As many without a log as with one, and all processes of the job are known: then it is no log that lacks."""
    begun = (process(0, comms=(joined(0, nranks=2),), pid=10),)
    known = {"processes": begun, "expected_ranks": 2, "node_of_rank": {}, "node_numbers": {}}
    ends = [death(rank, "signal", signal="SIGTERM", by_launcher=True, pid=pid) for rank, pid in ((0, 10), (None, 11))]
    [hit] = ask("STA001", deaths=tuple(ends), **known).hits
    assert (hit.culprits.ranks, hit.confidence) == ((1,), Confidence.POSSIBLE)
    for fewer in (ends[:1], ends[1:]):
        [hit] = ask("STA001", deaths=tuple(fewer), **known).hits
        assert not hit.culprits


def test_a_process_without_a_number_that_says_what_failed_has_begun() -> None:
    nameless = ProcessRecord(host="gpu0", pid=100, sources=("out.log",))
    begun = (process(1, comms=(joined(1, nranks=2),)), nameless)
    failed = event("nccl.ib_qp_failed", role=Role.ROOT, origin=Origin(source="out.log", line=3, host="gpu0", pid=100))
    known = {"expected_ranks": 2, "node_of_rank": {}}
    assert ask("STA001", processes=begun, events=(failed,), **known).state == "clear"
    assert ask("STA001", processes=begun, **known).hits
