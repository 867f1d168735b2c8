"""What lines of logs accuse in a run."""

from datetime import UTC, datetime
from typing import Any

import pytest

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.log import read_lines
from allready.judging import loading, registry
from allready.judging.engine import judge
from allready.model import CommRecord, Confidence, Event, FaultClass, Hit, Origin, ProcessRecord, Role, Severity
from allready.signatures import load
from tests.cases import cases
from tests.fleets import check
from tests.rules.desync.test_other_call import mismatch
from tests.rules.live.made import behind, ended, job
from tests.rules.runs import ask, death, event, operation, run_fleet


def test_what_such_a_rule_needs_is_what_its_function_asks_for() -> None:
    rules = [rule for rule in loading.load().values() if rule.area.startswith("log_")]
    assert rules
    for rule in rules:
        assert rule.body is not None
        assert rule.needs == tuple(registry._needs(rule.body))


def fingerprint(rank: int, other: int, op: str = "ALLREDUCE", other_op: str = "ALLREDUCE", seq: str = "31") -> Event:
    values = {"rank_a": str(rank), "rank_b": str(other), "op_a": op, "op_b": other_op, "seq_a": "31", "seq_b": seq}
    return event("torch.fingerprint_mismatch", rank, role=Role.ROOT, values=values)


def test_fingerprints_of_one_operation_differ_in_its_arguments() -> None:
    [hit] = ask("TCH016", events=(fingerprint(1, 2),)).hits
    assert hit.fault_class is FaultClass.DESYNC_ARGS
    [hit] = ask("TCH016", events=(fingerprint(1, 2, other_op="BROADCAST"),)).hits
    assert hit.fault_class is None  # the table's: another flow of calls


def test_the_rank_from_which_all_others_differ_is_the_odd_one() -> None:
    [hit] = ask("TCH016", events=(fingerprint(0, 2), fingerprint(1, 2), fingerprint(2, 0), fingerprint(3, 2))).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.LIKELY)


def test_whose_model_differs_from_two_others_is_the_odd_one() -> None:
    """Each rank reports the first one whose parameters differ from its own, or process 0."""

    def line(writer: int, a: int, b: int) -> Event:
        values = {"rank_a": str(a), "rank_b": str(b)}
        return event("torch.ddp_model_differs", writer, role=Role.ROOT, values=values)

    for lines, odd in (
        ([line(0, 0, 1), line(1, 1, 0), line(2, 2, 1)], (1,)),
        ([line(1, 0, 1), line(2, 0, 2)], (0,)),
        ([line(0, 0, 1), line(1, 1, 0)], ()),
    ):
        [hit] = ask("TCH024", events=tuple(lines)).hits
        assert hit.culprits.ranks == odd


def test_two_ranks_that_differ_are_a_tie() -> None:
    [hit] = ask("TCH016", events=(fingerprint(0, 2), fingerprint(2, 0))).hits
    assert not hit.culprits.ranks


def test_numbers_of_a_smaller_group_are_no_ranks_of_the_job() -> None:
    values = {"rank_a": "0", "rank_b": "1", "op_a": "A", "op_b": "A", "seq_a": "1", "seq_b": "1"}
    lines = tuple(event("torch.fingerprint_mismatch", r, role=Role.ROOT, values=values) for r in (4, 6))
    [hit] = ask("TCH016", events=lines).hits
    assert not hit.culprits.ranks


def test_a_line_that_names_every_rank_accuses_nobody() -> None:
    def named(text: str) -> tuple[int, ...]:
        line = event("torch.desync_report", role=Role.ROOT, values={"ranks": text})
        [hit] = ask("TCH015", events=(line,)).hits
        return hit.culprits.ranks

    assert named("1, 3") == (1, 3)
    assert named("0, 1, 2, 3") == ()


def test_an_echo_of_sizes_that_differ_yields_to_records_that_show_whose() -> None:
    line = event("gloo.size_mismatch", role=Role.ROOT)
    [alone] = ask("GLO005", events=(line,)).hits
    [beside] = ask("GLO005", events=(line,), mismatches=(mismatch((1,), operation(64, "broadcast")),)).hits
    assert (alone.severity, beside.severity) == (None, Severity.WARNING)


def bound(**changes: Any) -> Event:
    origin = Origin(source="out.log", line=5, host="gpu0", pid=100, rank=0)
    known: dict[str, Any] = {"role": Role.ROOT, "values": {"call": "bind"}, "origin": origin, "time_s": 10.0}
    return event("nccl.address_in_use", **(known | changes))


def at_line(line: int) -> Origin:
    return Origin(source="out.log", line=line, host="gpu0", pid=100, rank=0)


def test_who_gets_on_after_an_error_of_the_start_had_nothing_in_its_way() -> None:
    moving = ProcessRecord(rank=0, host="gpu0", pid=100, last_line_class="connect", last_origin=at_line(40))
    joined = CommRecord(comm="0x1", rank=0, nranks=2, init_completed=True, completed_s=11.0)
    for process in (moving, ProcessRecord(rank=0, host="gpu0", pid=100, comms=(joined,))):
        [hit] = ask("NLG023", events=(bound(),), processes=(process,)).hits
        assert (hit.severity, hit.confidence) == (Severity.WARNING, Confidence.POSSIBLE)
        assert not hit.culprits


def test_an_error_of_the_start_stays_one_where_its_process_did_not_get_on() -> None:
    before = ProcessRecord(rank=0, host="gpu0", pid=100, last_line_class="connect", last_origin=at_line(4))
    failed = ProcessRecord(rank=0, host="gpu0", pid=100, last_line_class="error", last_origin=at_line(40))
    another = ProcessRecord(rank=1, host="gpu0", pid=101, last_line_class="connect", last_origin=at_line(40))
    for process in (before, failed, another):
        [hit] = ask("NLG023", events=(bound(),), processes=(process,)).hits
        assert (hit.severity, hit.culprits.nodes) == (None, (0,))
    moving = ProcessRecord(rank=0, host="gpu0", pid=100, last_line_class="connect", last_origin=at_line(40))
    chain = event("nccl.back_trace", role=Role.CASCADE, values={"file": "init.cc:1", "result": "2"}, origin=at_line(6))
    [hit] = ask("NLG023", events=(bound(), chain), processes=(moving,)).hits
    assert hit.severity is None
    [hit] = ask("NLG023", events=(bound(),), processes=(moving,), deaths=(death(0),)).hits
    assert hit.severity is None


def test_a_port_that_is_taken_does_not_matter_to_an_agent_whose_rendezvous_completes() -> None:
    def said(signature: str, line: int, **changes: Any) -> Event:
        return event(signature, origin=Origin(source="out.log", line=line), **changes)

    taken = said("store.address_in_use", 4, role=Role.ROOT, values={"port": "29500"})
    [hit] = ask("STO002", events=(taken, said("elastic.rendezvous_complete", 10))).hits
    assert hit.severity is Severity.WARNING
    [hit] = ask("STO002", events=(taken, said("elastic.rendezvous_complete", 2))).hits
    assert hit.severity is None
    raised = said("store.address_in_use", 4, role=Role.ROOT, extra=("Traceback (most recent call last):",))
    [hit] = ask("STO002", events=(raised, said("elastic.rendezvous_complete", 10))).hits
    assert hit.severity is None


def test_who_does_not_come_to_the_barrier_of_jaxs_start_has_not_started() -> None:
    def told(id_: str) -> Hit:
        named = event("jax.barrier_timeout", 0, role=Role.ROOT, values={"id": id_, "ranks": "1, 2", "tasks": "1, 2"})
        [hit] = ask("JAX003", events=(named,)).hits
        return hit

    assert (told("PjRT_Client_Connect").fault_class, told("ckpt_save::0").fault_class) == (
        FaultClass.START_ABSENT,
        None,
    )
    assert told("ckpt_save::0").culprits.ranks == (1, 2)
    assert told("ckpt_save::0").confidence is Confidence.LIKELY  # the table says that the list may be cut


def test_one_try_without_an_address_of_ipv6_is_no_fault_yet() -> None:
    def told(family: str, count: int) -> Severity | None:
        text = f"The {family} network addresses of (n0, 29500) cannot be retrieved (gai error: -2 - unknown)."
        [hit] = ask("STO007", events=(event("store.name_unknown", 0, text, Role.ROOT, count=count),)).hits
        return hit.severity

    assert told("IPv6", 1) is Severity.WARNING
    assert told("IPv6", 30) is None
    assert told("IPv4", 1) is None


def test_a_message_of_several_lines_is_told_as_one() -> None:
    def line(number: int, rank: int | None = None, **values: str) -> Event:
        return event("launcher.mpi_exit", values=values, origin=Origin(source="out.log", line=number, rank=rank))

    block = (line(10, processes="1"), line(14), line(17, peer="3"), line(18, exitcode="1"))
    [hit] = ask("LCH015", events=block).hits
    assert (hit.values["peer"], hit.values["exitcode"]) == ("3", "1")
    [hit] = ask("LCH015", events=(*block[:2], line(400, peer="3"))).hits
    assert hit.values["peer"] is None  # another message
    [hit] = ask("LCH015", events=(*block[:2], line(15, rank=2, peer="3"))).hits
    assert hit.values["peer"] is None  # another writer
    [hit] = ask("LCH015", events=(line(10, peer="1"), line(12, peer="3", exitcode="9"))).hits
    assert (hit.values["peer"], hit.values["exitcode"]) == ("1", None)


def test_a_rank_whose_own_gradients_are_not_finite_is_named_but_not_all_of_them() -> None:
    def told(*ranks: int) -> Hit:
        lines = [event("python.local_gradients_not_finite", role=Role.ROOT, values={"ranks": str(r)}) for r in ranks]
        [hit] = ask("PYL022", events=tuple(lines)).hits
        return hit

    assert told(2).culprits.ranks == (2,)
    assert not told(0, 1, 2, 3).culprits


def severity_of(code: str, *lines: str) -> Severity | None:
    """How grave that is which `lines` of one file say, where not as ever."""
    [hit] = ask(code, events=tuple(read_lines(lines, "out.log", mtime_s=1.0).events)).hits
    return hit.severity


def test_a_pod_that_was_scheduled_later_is_a_warning() -> None:
    waits = "  Warning  FailedScheduling  5m  default-scheduler  0/8 nodes are available: 8 Insufficient cpu."
    assigned = "  Normal   Scheduled  2m  default-scheduler  Successfully assigned train/worker-0 to gpu-9"
    assert severity_of("LCH019", waits, assigned) is Severity.WARNING
    assert severity_of("LCH019", assigned, waits) is None  # another pod
    assert severity_of("LCH019", waits, assigned, waits) is None
    assert severity_of("LCH019", waits, *["", "", "Name:  worker-1", "Status:  Running", "Events:"], assigned) is None
    # A list of the events of many pods.
    assert severity_of("LCH019", waits.replace("default-scheduler", "pod/worker-1"), assigned) is None


def test_a_server_that_answers_again_soon_is_a_warning() -> None:
    def nfs(second: int, says: str, server: str = "s1") -> str:
        return f"[Fri Nov 20 11:{50 + second // 60}:{second % 60:02} 2026] nfs: server {server} {says}"

    waits = "not responding, still trying"
    assert severity_of("KRN017", nfs(0, waits), nfs(1, waits), nfs(2, "OK"), nfs(2, "OK")) is Severity.WARNING
    assert severity_of("KRN017", nfs(0, waits), nfs(2, "OK"), nfs(9, waits)) is None
    assert severity_of("KRN017", nfs(0, waits), nfs(299, "OK")) is None
    assert severity_of("KRN017", nfs(0, waits), nfs(2, "OK", "s2")) is None
    assert severity_of("KRN017", f"nfs: server s1 {waits}", "nfs: server s1 OK") is None  # who knows when


def test_the_hint_fits_the_words_of_the_line() -> None:
    def hint(error: str) -> str:
        line = event(
            "launcher.slurm_launch_failed",
            text=f"srun: error: Unable to create step for job 7: {error}",
            role=Role.ROOT,
            values={"error": error},
        )
        [hit] = ask("LCH012", events=(line,)).hits
        return str(hit.values["hint"])

    assert "munge" in hint("Job credential expired")
    assert "scontrol show node" in hint("Memory required by task is not available")
    assert "partition" in hint("More processors requested than permitted")


def test_a_port_that_nccl_goes_on_without_is_a_warning() -> None:
    def lines(*names: str) -> tuple[Event, ...]:
        origin = Origin(source="out.log", line=1, host="gpu01", pid=7, rank=1)
        text = "NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)"
        return tuple(event(name, text=text, role=Role.ROOT, origin=origin) for name in ("nccl.ib_port_down", *names))

    def severity(*names: str) -> Severity | None:
        [hit] = ask("NLG091", events=lines(*names)).hits
        return hit.severity

    assert severity() is None
    assert severity("nccl.ib_failed_over") is Severity.WARNING
    assert severity("nccl.ib_failed_over", "nccl.ib_failover_exhausted") is None


def unhealthy() -> Event:
    return event("jax.unhealthy_tasks", 0, role=Role.ROOT, values={"ranks": "1", "tasks": "1"})


def test_a_process_that_was_missed_and_had_to_be_ended_later_was_not_dead() -> None:
    [gone] = ask("JAX006", events=(unhealthy(),)).hits
    stopped = death(1, "signal", signal="SIGTERM", by_launcher=True)
    [alive] = ask("JAX006", events=(unhealthy(),), deaths=(stopped,)).hits
    [killed] = ask("JAX006", events=(unhealthy(),), deaths=(stopped, death(1, "signal", signal="SIGKILL"))).hits
    assert (gone.fault_class, alive.fault_class, killed.fault_class) == (None, FaultClass.CPU_STUCK, None)
    assert alive.culprits.ranks == (1,)


def test_process_0_is_the_one_that_does_not_answer() -> None:
    [hit] = ask("JAX036", events=(event("jax.leader_silent", 3, role=Role.ROOT),)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((0,), Confidence.LIKELY)


def test_a_node_of_which_only_its_launcher_speaks_did_not_come() -> None:
    def gave_up(node: str) -> Event:
        origin = Origin(source=f"out.{node}.log", node=node)
        return event("jax.start_timeout", role=Role.ROOT, origin=origin)

    def ended(node: str = "node1") -> Event:
        return event("elastic.closing_signal", origin=Origin(source=f"out.{node}.log", node=node))

    numbers = {"node0": 0, "node1": 1}
    both = (gave_up("node0"), ended("node0"), ended())
    [hit] = ask("JAX010", events=both, node_numbers=numbers, node_of_rank={}).hits
    assert (hit.culprits.nodes, hit.confidence) == ((1,), Confidence.LIKELY)
    [all_gave_up] = ask(
        "JAX010", events=(gave_up("node0"), gave_up("node1")), node_numbers=numbers, node_of_rank={}
    ).hits
    assert not all_gave_up.culprits
    three = numbers | {"node2": 2}  # most are silent: rather their output was not given
    [hit] = ask("JAX010", events=both, node_numbers=three, node_of_rank={}).hits
    assert not hit.culprits
    # Ranks have files of their own.
    [hit] = ask("JAX010", events=(gave_up("node0"), ended()), node_numbers=numbers, node_of_rank={}).hits
    assert not hit.culprits


@pytest.mark.parametrize(("ended_s", "nodes"), [(1001.0, ()), (1030.0, (1,))])
def test_a_node_that_was_ended_when_others_gave_up_may_have_waited_as_well(ended_s: float, nodes: tuple[int]) -> None:
    gave_up = event("jax.start_timeout", role=Role.ROOT, time_s=1000.0, origin=Origin(source="out.log", node="node0"))
    stopped = death(None, "signal", signal="SIGTERM", by_launcher=True, node="node1", time_s=ended_s)
    [hit] = ask("JAX010", events=(gave_up,), deaths=(stopped,), node_of_rank={}).hits
    assert hit.culprits.nodes == nodes


def test_a_line_that_two_classes_of_faults_bring_about_is_only_possible() -> None:
    [hit] = ask("NLG035", events=(event("nccl.message_truncated", 0, role=Role.ROOT),)).hits
    assert (hit.confidence, hit.culprits.ranks) == (Confidence.POSSIBLE, ())


def test_what_kept_nvshmem_from_a_network_is_the_fault_only_where_it_did_not_start() -> None:
    def lines(*names: str) -> tuple[Event, ...]:
        origin = Origin(source="out.log", line=1, host="gpu01", pid=7)
        return tuple(event(f"nccl.{name}", values={"transport": "ibrc"}, origin=origin) for name in names)

    def severity(code: str, *names: str) -> Severity | None:
        [hit] = ask(code, events=lines(*names)).hits
        return hit.severity

    assert severity("NLG152", "nvshmem_no_peermem") is None
    assert severity("NLG152", "nvshmem_no_peermem", "nvshmem_setup_failed") is Severity.ERROR
    assert severity("NLG152", "nvshmem_no_peermem", "nvshmem_gpu_unreachable") is Severity.ERROR
    assert severity("NLG153", "nvshmem_no_peermem", "nvshmem_gpu_unreachable") is Severity.WARNING
    assert severity("NLG153", "nvshmem_gpu_unreachable") is None


def test_a_receive_of_a_monitored_barrier_is_told_by_the_barrier() -> None:
    echo = event("torch.monitored_barrier_echo", 5, role=Role.CASCADE)
    receive = event("gloo.recv_timeout", 5, values={"timeout_ms": "1800000", "op": "recv"})
    found, _ = judge(run_fleet(events=(echo, receive)))
    assert next(f.code for f in found) == "RES011"
    found, _ = judge(run_fleet(events=(receive,)))
    assert next(f.code for f in found) == "GLO001"


def test_a_switch_that_timed_out_behind_a_fault_of_the_program_is_no_fault_of_the_gpu() -> None:
    def severity(*xids: str) -> Severity | None:
        origin = Origin(source="dmesg.log", line=1, host="gpu01")
        lines = tuple(
            event(
                "kernel.xid_application" if xid == "13" else "kernel.xid_firmware",
                role=Role.ROOT,
                origin=origin,
                values={"pci": "0000:cb:00", "xid": xid, "said": None},
            )
            for xid in xids
        )
        [hit] = ask("KRN004", events=lines).hits
        return hit.severity

    assert severity("109") is None
    assert severity("13", "109") is Severity.WARNING
    assert severity("13", "109", "119") is None


def test_a_flag_that_met_a_tensor_is_another_call_and_one_number_in_two_types_is_none() -> None:
    def fault_class(received: str, expected: str) -> FaultClass | None:
        values = {"received_bytes": received, "expected_bytes": expected}
        [hit] = ask("GLO005", events=(event("gloo.size_mismatch", 0, role=Role.ROOT, values=values),)).hits
        return hit.fault_class

    assert fault_class("4000", "4") is fault_class("1", "9") is FaultClass.DESYNC_FLOW
    assert fault_class("8", "4") is fault_class("4", "8") is fault_class("4000", "2000") is None


PORT_TAKEN = (
    "E1123 03:05:44.852276     664 add_port.cc:83] Failed to add port to server: No address added out of total 1 "
    "resolved for '[::]:9999' (Error in bind for address '[::]:9999': Address already in use)"
)


def test_a_port_that_a_server_of_another_kind_does_not_get_is_no_fault_of_process_0() -> None:
    taken = load()["jax.cannot_listen"]
    roles = [taken.role_of(PORT_TAKEN, {}, "", has_progress=is_on) for is_on in (False, True)]
    assert roles == [Role.ROOT, Role.HARMLESS]
    [hit] = ask("JAX039", events=(event("jax.cannot_listen", 3, role=Role.ROOT),)).hits
    assert (hit.culprits.nodes, hit.culprits.ranks, hit.confidence) == ((1,), (), Confidence.LIKELY)


def test_a_task_without_heartbeats_whose_agent_sees_its_process_is_stuck_and_not_dead() -> None:
    told = event("jax.heartbeat_timeout", 0, role=Role.ROOT, values={"ranks": "1", "task": "1"})
    for rank, expected in ((behind(1), FaultClass.CPU_STUCK), (ended(1, None, "SIGKILL"), FaultClass.DEAD)):
        [hit] = check("JAX005", job(rank, events=(told,), stacks=())).hits
        assert (hit.culprits.ranks, hit.fault_class or FaultClass.DEAD) == ((1,), expected), rank


def test_the_value_of_a_variable_is_shown_and_why_a_node_without_lines_is_accused() -> None:
    lines = (event("nccl.no_socket_interface", 0, role=Role.ROOT),)
    env = {"NCCL_SOCKET_IFNAME": "bond7"}
    known = (
        ProcessRecord(rank=0, host="gpu0", pid=100, sources=("nccl.0.log",), env=env),
        ProcessRecord(rank=2, host="gpu1", pid=102),
    )
    [hit] = ask("NLG001", events=lines, processes=known).hits
    assert hit.culprits.nodes == (0, 1)
    shown = [(e.source, e.text) for e in hit.evidence[1:]]
    assert shown == [
        ("nccl.0.log", "rank 0: NCCL_SOCKET_IFNAME=bond7"),
        ("node 1", "nothing shows what NCCL_SOCKET_IFNAME does there; most launchers give all nodes one environment"),
    ]


@cases(
    ("words", "code", "is_accused"),
    [
        ("ACL stream synchronize failed, error code:507048", "CUD028", False),
        ("NPU function error: AclrtSynchronizeDeviceWithTimeout, error code is 507046", "CUD028", False),
        ("NPU function error: AclrtSynchronizeDeviceWithTimeout, error code is 507015", "CUD029", True),
        ("The Inner error is reported as above. The current working operator name is HcclAllreduce", "RES012", False),
    ],
)
def test_a_rank_that_waited_on_its_npu_is_not_accused_and_one_whose_kernel_failed_is(
    words: str, code: str, is_accused: bool
) -> None:
    trace = ["Traceback (most recent call last):", '  File "/w/train.py", line 9, in step', f"RuntimeError: {words}"]
    reading = read_lines([f"[rank2]: {line}" for line in trace], "job.out")
    verdict = judge_readings([reading], Question(), started=datetime.now(UTC))[0].verdict
    assert (verdict.code if verdict is not None else "") == code
    assert (verdict is not None and verdict.culprits.ranks == (2,)) is is_accused
