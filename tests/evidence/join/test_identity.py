from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.evidence.join.identity import MAX_RANKS, Identities, identify
from allready.evidence.reading import RasAnswer
from allready.model import GroupProgress, Origin, Position, Recorder
from tests.judging.made import comm, event, known, process


def test_equal_host_names_and_pids_on_two_nodes_are_two_processes() -> None:
    """Containers: every node says that it is `vm`, and numbers its processes alike."""
    found = known(process(0, "node0", pid=7), process(2, "node1", pid=7))
    assert found.rank_of("vm", 7) is None
    assert found.node_of_rank[2] == 1


def test_a_pid_without_its_host_is_known_if_no_other_host_has_it() -> None:
    found = known(process(0, host="a", pid=7), process(1, host="b", pid=8))
    assert (found.rank_of(None, 8), found.rank_of("elsewhere", 7)) == (1, 0)


def test_the_parts_of_a_process_in_two_files_are_one_record() -> None:
    found = known(process(0, sources=("a",), op_counts={"all_reduce": 2}), process(0, sources=("b",)))
    assert [(p.sources, p.op_counts) for p in found.processes] == [(("a", "b"), {"all_reduce": 2})]


def test_the_world_is_the_largest_group_that_anything_names() -> None:
    assert known(process(0, comms=(comm(0, 2), comm(0, 8)))).world_size == 8
    assert identify([], [event("store.waiting_for_clients", values={"expected": "16"})], [], []).world_size == 16
    assert identify([], [], [], []).world_size == 0


def test_a_damaged_number_of_ranks_is_not_believed() -> None:
    found = identify([], [event("store.waiting_for_clients", values={"expected": "9999999"})], [], [])
    assert found.world_size == 0
    assert known(process(0, comms=(comm(0, 10**9),))).world_size <= MAX_RANKS


def test_nodes_are_numbered_as_their_names_say_when_they_begin_at_0() -> None:
    assert known().node_numbers["node1"] == 1
    named = known(process(0, "gpu17"), process(1, "gpu17"), process(2, "gpu18"))
    assert (named.node_numbers["gpu17"], named.node_numbers["gpu18"]) == (0, 1)


def test_nodes_whose_names_count_alike_are_numbered_in_one_order_whichever_is_read_first() -> None:
    """`node0` and `node00` are the same number; a set of names has another order in every process."""
    names = [f"node{'0' * zeros}" for zeros in range(1, 9)]
    numbers = [
        known(*(process(None, name, pid=pid) for pid, name in enumerate(order))).node_numbers
        for order in (names, names[::-1])
    ]
    assert [sorted(found, key=lambda name: found[name]) for found in numbers] == [names, names]


def test_only_what_the_job_says_numbers_its_nodes() -> None:
    """A host called worker-3 is no node 3: whatever number tells it apart is not shown."""
    wrong = []
    for number, (processes, numbers, is_numbered) in enumerate(
        (
            ((process(None, "worker-3", pid=7),), {"worker-3": 0}, False),
            (
                (process(None, "worker-1", pid=7), process(None, "worker-2", pid=8)),
                {"worker-1": 1, "worker-2": 2},
                False,
            ),
            ((process(0, "worker-0"), process(8, "worker-1")), {"worker-0": 0, "worker-1": 1}, True),
            ((process(8, "worker-3"),), {"worker-3": 0, "vm": 0}, False),
            ((process(None, "node3", pid=7),), {"node3": 3}, True),
            ((process(0, "gpu17"), process(16, "gpu19")), {"gpu17": 0, "gpu19": 1}, False),
            (tuple(process(r, f"gpu{17 + r}", comms=(comm(r, 2),)) for r in (0, 1)), {"gpu17": 0, "gpu18": 1}, True),
        )
    ):
        found = known(*processes)
        if (found.node_numbers, found.is_numbered) != (numbers, is_numbered):
            wrong.append((number, found.node_numbers, found.is_numbered))
    assert wrong == []
    launched = event("elastic.rendezvous_complete", node="worker-3", values={"group_rank": "3"})
    assert identify([process(24, "worker-3")], [launched], [], []).is_numbered


def test_the_launchers_number_of_a_node_counts_more_than_its_name() -> None:
    told = [event("elastic.rendezvous_complete", node=n, values={"group_rank": g}) for n, g in (("a", "1"), ("b", "0"))]
    found = identify([process(0, "b"), process(1, "a")], told, [], [])
    assert found.node_numbers["a"] == 1


def test_ranks_between_known_ones_are_filled_in_only_if_one_layout_fits() -> None:
    assert known(*(process(r, f"node{r // 2}") for r in (0, 3, 4, 7))).node_of_rank[5] == 2
    assert 1 not in known(process(0, "node0"), process(9, "node1")).node_of_rank


def test_the_addresses_of_ras_belong_to_the_node_of_a_known_rank() -> None:
    group = GroupProgress(group="g", source=Recorder.RAS, size=4, positions={r: Position(enqueued=1) for r in range(4)})
    hosts = {("g", r): (f"10.0.0.{1 + r // 2}", 100 + r) for r in range(4)}
    answer = RasAnswer(origin=Origin(source=Recorder.RAS), groups=[group], hosts=hosts)
    found = identify([process(0, "node0"), process(2, "node1")], [], [], [answer])
    assert found.node_of_rank == {0: 0, 1: 0, 2: 1, 3: 1}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-5, 10**7)),
            st.sampled_from(["a", "b", "n1", "", "9"]),
            st.one_of(st.none(), st.integers(-1, 10**9)),
            st.integers(-3, 10**9),
        ),
        max_size=8,
    )
)
def test_absurd_numbers_break_nothing(rows: list[tuple[int | None, str, int | None, int]]) -> None:
    records = [process(rank, node, pid=pid, comms=(comm(rank or 0, nranks),)) for rank, node, pid, nranks in rows]
    found = identify(records, [], [], [])
    assert 0 <= found.world_size <= MAX_RANKS
    assert len(found.node_of_rank) <= MAX_RANKS + len(rows)


def lonely(*nodes: str) -> Identities:
    """One rank on each of these nodes."""
    num = len(nodes)
    return known(*(process(r, node, comms=(comm(r, num),)) for r, node in enumerate(nodes)))


def test_the_only_rank_of_a_node_wrote_what_nobody_signed_there() -> None:
    seen = lonely("node0", "node1")
    nobody = Origin(source="out.node1.log", node="node1")
    assert seen.alone(nobody) == 1
    assert seen.completed(nobody).rank is None  # it may be the launcher's
    assert seen.completed(nobody, is_ranks=True).rank == 1
    assert seen.alone(replace(nobody, pid=7)) is None
    assert seen.alone(replace(nobody, local_rank=1)) is None


def test_no_rank_is_alone_where_others_may_share_its_node() -> None:
    some = known(process(0, "node0"), process(1, "node1"))  # of four
    for seen in (lonely("node0", "node1", "node1"), some):
        assert seen.alone(Origin(source="out.node1.log", node="node1")) is None


def test_no_rank_is_alone_by_the_size_of_a_smaller_group() -> None:
    pair = (comm(0, 2),)  # the largest that any rank tells, and rank 2 is there
    seen = known(process(0, "node0", comms=pair), process(1, "node0", comms=()), process(2, "node1", comms=()))
    assert seen.world_size == 2
    assert seen.alone(Origin(source="out.node1.log", node="node1")) is None
