from collections.abc import Sequence

from msgspec.structs import replace

from allready.evidence.join.identity import Identities
from allready.judging.ends import ended_well, merge_deaths
from allready.model import BenchRow, BenchRun, Death, Event, Origin
from tests.cases import cases
from tests.judging.made import comm, death, event, known, process

OOM = "Out of memory: Killed process {} ({}) total-vm:1kB"


def merged(*deaths: Death, events: tuple[object, ...] = ()) -> tuple[Death, ...]:
    return merge_deaths(deaths, known(), events)[0]  # type: ignore[arg-type]


def test_a_traceback_and_its_row_in_the_table_are_one_death() -> None:
    raised = death(rank=2, text="ValueError: bad", time_s=10.0)
    row = death("exit", line=9, rank=2, pid=102, exit_code=1, time_s=11.0, first=True)
    [one] = merged(raised, row)
    assert (one.kind, one.text, one.exit_code, one.pid, one.first) == ("exception", "ValueError: bad", 1, 102, True)


def test_a_crash_right_behind_a_result_of_nccl_is_no_end_of_its_own() -> None:
    crashed = death("signal", line=30, pid=77, signal="SIGSEGV", text="*** SIGSEGV received at time=1 ***")
    near, far = (event("nccl.result_system", line, pid=None) for line in (25, 5))
    of_it, of_another = (event("nccl.result_system", 5, pid=pid) for pid in (77, 78))
    assert [d.is_collective_error for d in merged(crashed, events=(near,))] == [True]
    assert [d.is_collective_error for d in merged(crashed, events=(of_it,))] == [True]
    for other in (far, of_another, event("nccl.result_system", 31, pid=77)):
        assert [d.is_collective_error for d in merged(crashed, events=(other,))] == [False]
    told = replace(crashed, exit_code=-11)  # by a launcher, below everything that its ranks wrote
    assert [d.is_collective_error for d in merged(told, events=(near,))] == [False]


@cases(
    ("nodes", "devices", "rank"),
    [
        ((0, 0, 0, 0), (0, 1, 2, 3), 3),
        ((0, 0, 1, 1), (0, 1, 0, 1), None),
        ((0, 0, 0, 0), (0, 1, 0, 1), None),  # two launchers on one machine
        ((0, 0, 0, 0), (0, 0, 0, 0), None),  # each sees its own GPU only: nothing tells
        ((0, 0, 0), (0, 1, 2), None),  # a rank is not seen
    ],
)
def test_on_one_node_a_local_rank_is_a_rank(nodes: tuple[int, ...], devices: tuple[int, ...], rank: int | None) -> None:
    seen = known(*(process(r, f"node{n}", cuda_dev=d) for r, (n, d) in enumerate(zip(nodes, devices, strict=True))))
    [one] = merge_deaths([death(local_rank=3, text="ValueError: bad")], seen, ())[0]
    assert (one.rank, one.local_rank) == (rank, 3)
    [one] = merge_deaths([death(local_rank=7, text="ValueError: bad")], seen, ())[0]
    assert one.rank is None


def test_two_processes_of_one_rank_die_two_deaths() -> None:
    """An attempt after the other: equal ranks, other pids, seconds apart."""
    assert len(merged(death("exit", rank=2, pid=102, time_s=10.0), death("exit", rank=2, pid=202, time_s=14.0))) == 2


def test_one_pid_on_two_hosts_is_two_processes() -> None:
    assert len(merged(death("exit", pid=7, host="a"), death("exit", pid=7, host="b"))) == 2


def test_who_raised_was_not_ended_by_the_scheduler_that_came_later() -> None:
    late = death("signal", source="slurm.out", rank=2, signal="SIGTERM", by_launcher=True)
    [one] = merged(death(rank=2, text="ValueError: bad", time_s=10.0), late)
    assert (one.kind, one.by_launcher, one.signal) == ("exception", False, None)
    [one] = merged(
        death("signal", rank=3, signal="SIGKILL", exit_code=-9),
        late.__class__(kind="signal", origin=late.origin, rank=3, signal="SIGTERM", by_launcher=True),
    )
    assert (one.signal, one.by_launcher) == ("SIGKILL", False)


def test_a_row_of_the_table_of_whom_the_agent_stopped_is_no_cause() -> None:
    closing = event("elastic.closing_signal", values={"pid": "102"})
    [one] = merged(death("signal", pid=102, signal="SIGTERM", exit_code=-15), events=(closing,))
    assert (one.rank, one.by_launcher) == (2, True)


def test_the_watchdog_ends_its_own_process_by_abort() -> None:
    waited = event("torch.watchdog_timeout", rank=1)
    [one] = merged(death("abort", rank=1, signal="SIGABRT"), events=(waited,))
    assert one.is_collective_error
    [other] = merged(death("abort", rank=2, signal="SIGABRT"), events=(waited,))
    assert not other.is_collective_error


def test_a_crash_after_cuda_was_unloaded_is_one_of_a_process_on_its_way_out() -> None:
    unloading = event("cuda.unloading", rank=1)
    [one] = merged(death("signal", rank=1, signal="SIGSEGV"), events=(unloading,))
    assert one.while_exiting
    [other] = merged(death("signal", rank=2, signal="SIGSEGV"), events=(unloading,))
    assert not other.while_exiting
    [killed] = merged(death("signal", rank=1, signal="SIGKILL"), events=(unloading,))
    assert not killed.while_exiting


def test_a_signal_that_others_saw_has_the_reason_that_the_library_gave_when_it_aborted() -> None:
    seen = death("signal", source="status.json", rank=1, pid=101, signal="SIGABRT", time_s=10.0, text="killed")
    for is_collective_error in (True, False):
        said = death("abort", rank=1, signal="SIGABRT", text="enforce fail", is_collective_error=is_collective_error)
        [one] = merged(seen, said)
        assert one.is_collective_error is is_collective_error
    other = death("signal", source="status.json", rank=1, pid=101, signal="SIGKILL", time_s=10.0, text="killed")
    [one] = merged(other, death("abort", rank=1, text="enforce fail", is_collective_error=True))
    assert not one.is_collective_error


def test_the_memory_killer_is_joined_with_the_rank_that_vanished_on_its_node() -> None:
    gone = death("signal", rank=3, pid=103, signal="SIGKILL", exit_code=-9, time_s=100.0, node="node1")
    said = death(
        "oom",
        source="dmesg.node1",
        pid=48231,
        signal="SIGKILL",
        node="node1",
        time_s=99.0,
        text=OOM.format(48231, "python3"),
    )
    deaths, victims = merge_deaths([gone, said], known(), [])
    [one] = deaths
    assert (one.kind, one.rank) == ("oom", 3)
    assert victims == {("dmesg.node1", 48231)}


def test_the_memory_killer_of_another_node_or_hour_took_somebody_else() -> None:
    gone = death("signal", rank=3, pid=103, signal="SIGKILL", time_s=100.0, node="node1")
    for node, time_s in (("node0", 99.0), ("node1", 9_000.0)):
        text = OOM.format(9, "chrome")
        said = death("oom", source="dmesg", pid=9, signal="SIGKILL", text=text, node=node, time_s=time_s)
        deaths, victims = merge_deaths([gone, said], known(), [])
        assert [(d.kind, d.rank) for d in deaths] == [("signal", 3)]
        assert not victims


def test_the_memory_killer_that_names_a_ranks_pid_is_a_death_by_itself() -> None:
    said = death("oom", source="dmesg", pid=102, host="vm", signal="SIGKILL", text=OOM.format(102, "python3"))
    [one] = merged(said)
    assert (one.kind, one.rank) == ("oom", 2)


def test_ended_well_needs_every_communicator_destroyed_and_no_death() -> None:
    good = process(0, comms=(comm(0, 2, destroyed=True),))
    half = process(1, comms=(comm(1, 2, destroyed=True), comm(1, 2, comm="0x2")))
    identities = known(good, half)
    assert ended_well(identities.processes, [], [], identities, has_output=True) == {0}
    assert ended_well(identities.processes, [], [death(rank=0)], identities, has_output=True) == frozenset()


def test_thousands_of_deaths_are_merged_in_a_moment() -> None:
    told = [death("exit", source=f"{r}.log", rank=r, pid=r, time_s=1.0) for r in range(4096)]
    again = [death("signal", source=f"{r}.log", rank=r, pid=r, signal="SIGABRT", time_s=2.0) for r in range(4096)]
    assert len(merged(*told, *again)) == 4096


def test_whole_tables_of_nccl_tests_are_an_orderly_end_of_all_their_ranks() -> None:
    whole = BenchRun(origin=Origin(source="x.out"), operation="all_reduce", avg_busbw_gb_per_s=36.5, num_ranks=2)
    nobody = Identities(world_size=2)

    def well(*runs: BenchRun, identities: Identities = nobody) -> frozenset[int]:
        return ended_well((), (), (), identities, runs, has_output=False)

    assert well(whole) == {0, 1}
    assert well(whole, identities=Identities(world_size=4)) == frozenset()  # the job had more ranks than the table
    assert well(whole, replace(whole, avg_busbw_gb_per_s=None)) == frozenset()
    assert well(replace(whole, out_of_bounds=3)) == frozenset()
    wrong = BenchRow(size_bytes=8, time_us=1.0, algbw_gb_per_s=1.0, busbw_gb_per_s=1.0, num_wrong=1)
    assert well(replace(whole, rows=(wrong,))) == frozenset()
    assert well(replace(whole, rows=(wrong._replace(num_wrong=-1),))) == {0, 1}  # not compared


def test_groups_that_were_not_destroyed_show_no_good_end_beside_one_that_is_bad() -> None:
    """torch warns of them after an exception, too."""
    warned = event("torch.not_destroyed", rank=0)

    def well(*events: Event, deaths: Sequence[Death] = ()) -> frozenset[int]:
        return ended_well([], events, deaths, known(), has_output=True)

    assert well(warned) == {0}
    nameless = Death(kind="exit", origin=Origin(source="out.node0.log", line=9), local_rank=0, exit_code=1)
    assert well(warned, deaths=[nameless]) == frozenset()
    assert well(warned, event("elastic.closing_signal", values={"pid": "7"})) == frozenset()


def test_who_raised_on_a_node_with_one_rank_is_that_rank() -> None:
    seen = known(process(0, "node0"), process(1, "node1"))
    seen.rank_of_node = {"node0": 0, "node1": 1}
    raised = death(text="ValueError: bad", source="out.node1.log", node="node1")
    [one] = merge_deaths([raised], seen, ())[0]
    assert one.rank == 1
    [agents] = merge_deaths([replace(raised, is_agents=True)], seen, ())[0]
    assert agents.rank is None


@cases(
    ("told", "rank"),
    [
        ({"a/attempt_0/1/stderr.log": 5}, 7),
        ({"a/attempt_0/1/stderr.log": 5, "a/attempt_0/0/stdout.log": 4}, 7),
        ({"a/attempt_0/1/stderr.log": 5, "a/attempt_0/0/stdout.log": 3}, None),  # they disagree
        ({"b/attempt_0/1/stderr.log": 5}, None),  # another node's agent
        ({"a/attempt_1/1/stderr.log": 5}, None),  # another attempt may have other numbers
        ({"a/attempt_0/3/stderr.log": 1}, None),  # not a number that an agent gives
        ({}, None),
    ],
)
def test_a_rank_of_torchruns_folder_is_known_by_those_beside_it(told: dict[str, int], rank: int | None) -> None:
    others = [event("gloo.peer_closed", source=source, rank=number) for source, number in told.items()]
    raised = death(source="a/attempt_0/3/stderr.log", local_rank=3, text="KeyError: 'image'")
    [one] = merge_deaths([raised], known(), others)[0]
    assert (one.rank, one.local_rank) == (rank, 3)


@cases(
    ("rows", "rank"),
    [
        ({0: 4, 3: 7}, 7),
        ({0: 4, 3: 9}, None),  # two tables, or one of another launcher
        ({0: 4, 2: 6}, None),  # of another node: another one was the first there
        ({}, None),
    ],
)
def test_a_rank_of_torchruns_folder_is_known_by_the_launchers_table(rows: dict[int, int], rank: int | None) -> None:
    table = [
        death(
            "exit", source="launcher.log", rank=number, local_rank=local, pid=100 + local, exit_code=1, first=local > 0
        )
        for local, number in rows.items()
    ]
    raised = death(source="logs/attempt_0/3/stderr.log", local_rank=3, text="KeyError: 'image'")
    found = merge_deaths([raised, *table], known(), ())[0]
    [one] = [d for d in found if d.text]
    assert (one.rank, one.local_rank) == (rank, 3)
    other = death(source="other/attempt_0/1/stderr.log", local_rank=1, text="KeyError: 'x'")
    two_folders = merge_deaths([raised, other, *table], known(), ())[0]
    assert {d.rank for d in two_folders if d.text} == {None}
