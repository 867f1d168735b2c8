"""What agents answer, read by the readers of files."""

import base64
import json
import pickle
from typing import Any

import pytest
from msgspec.structs import replace

from allready.evidence.nccl_record import NcclRecord, encoded
from allready.judging.calls import LoggedCalls
from allready.live.monitor.readings import readings_of
from allready.live.monitor.run_evidence import assembled
from allready.model import NodeEvidence, NodeStatus, Origin, ProcessRecord, ProcessState, RankEvidence, RankStatus, Role
from tests.evidence.operations.streams import AR
from tests.evidence.operations.streams import stream as made
from tests.live.monitor.made import CLOSED, IN_ALL_REDUCE, STACK, entry, traceback

ALIVE = RankStatus(rank=3, pid=77, process_state=ProcessState.SLEEPING)
DEAD = RankStatus(rank=3, pid=77, process_state=ProcessState.EXITED, exit_code=1, ended_s=100.0)


def answer(*ranks: RankEvidence, **changes: object) -> NodeEvidence:
    status = NodeStatus(node_rank=1, name="gpu1", time_s=100.0, ranks=tuple(r.status for r in ranks))
    known = {"node_rank": 1, "number": 1, "time_s": 100.0, "status": status, "ranks": ranks}
    return NodeEvidence(**(known | changes))  # type: ignore[arg-type]


def test_a_stack_belongs_to_its_rank_and_to_its_file_in_the_report_folder() -> None:
    text = STACK.format(pid=77, rank=3, frames=IN_ALL_REDUCE)
    [reading] = readings_of(answer(RankEvidence(rank=3, status=ALIVE, stack=text)))
    [stack] = reading.stacks
    assert (stack.rank, stack.pid, stack.role) == (3, 77, "rank")
    assert reading.source.path == "attempt0/node1/rank3/evidence/stacks.txt"


def test_the_dump_with_call_sites_is_preferred_to_the_ring() -> None:
    frames = [{"name": "<module>", "filename": "/home/u/train.py", "line": 12}]
    data = pickle.dumps(
        {"version": "2.10", "entries": [entry(1, 50.0) | {"frames": frames}], "pg_status": {}}, protocol=2
    )
    ring = json.dumps({"version": "2.10", "entries": [entry(1, 50.0)]})
    one = RankEvidence(rank=3, status=ALIVE, ring=ring, dump=base64.b64encode(data).decode())
    [reading] = readings_of(answer(one))
    assert reading.dumps[0].rank == 3
    assert any(site and "train.py:12" in str(site) for site in reading.dumps[0].sites)
    broken = RankEvidence(rank=3, status=ALIVE, ring=ring, dump="????")
    [reading] = readings_of(answer(broken))
    assert (reading.dumps[0].rank, reading.source.path) == (3, "attempt0/node1/rank3/evidence/ring.json")


def test_the_output_of_a_living_rank_is_not_judged() -> None:
    assert readings_of(answer(RankEvidence(rank=3, status=ALIVE, log_tail=traceback("ValueError: x")))) == []


def test_the_last_words_of_a_dead_one_are_its_own() -> None:
    [reading] = readings_of(answer(RankEvidence(rank=3, status=DEAD, log_tail=traceback("ValueError: bad shard"))))
    [death] = reading.deaths
    assert (death.rank, death.pid, death.text) == (3, 77, "ValueError: bad shard")


def test_the_line_that_explains_an_end_is_found_also_where_the_library_ends_it_with_a_space() -> None:
    """As torch writes it when a data loader's worker was killed."""
    words = traceback("RuntimeError: DataLoader worker (pid 1295) is killed by signal: Killed. ")
    [reading] = readings_of(answer(RankEvidence(rank=3, status=DEAD, log_tail=words)))
    assert [event.signature for event in reading.events] == ["python.loader_worker_died"]


def test_the_very_last_line_of_a_process_that_crashed_is_why() -> None:
    """As JAX's coordinator ends whose port is taken: one line of gRPC, then SIGSEGV."""
    line = (
        "E1123 03:05:44.852276     664 add_port.cc:83] Failed to add port to server: No address added out of total 1 "
        "resolved for '[::]:52279' (Failed to add any wildcard listeners: UNKNOWN:bind: Address already in use)\n"
    )
    crashed, killed = (replace(DEAD, exit_code=None, signal=signal) for signal in ("SIGSEGV", "SIGKILL"))
    [reading] = readings_of(answer(RankEvidence(rank=3, status=crashed, log_tail=line)))
    assert [event.signature for event in reading.events] == ["jax.cannot_listen"]
    for status, tail in ((killed, line), (crashed, line + "step 1\n")):
        [reading] = readings_of(answer(RankEvidence(rank=3, status=status, log_tail=tail)))
        assert not reading.events, f"{status.signal}: another one ended it, or it went on after the line"


def test_a_crash_after_the_end_of_the_script_is_known_by_cuda_being_unloaded() -> None:
    line = "[E1128 05:12:59.535 WorkNCCL.cpp:362] CUDA error during end event query: CUDA error: driver shutting down"
    crashed = replace(DEAD, exit_code=None, signal="SIGSEGV")
    for status, known in ((crashed, ["cuda.unloading"]), (DEAD, [])):
        [reading] = readings_of(answer(RankEvidence(rank=3, status=status, log_tail=line + "\nframe #0: ...\n")))
        assert [e.signature for e in reading.events] == known


def test_one_of_the_last_lines_of_a_process_that_left_without_a_traceback_is_why() -> None:
    """Programs in C++ and scripts that catch their own errors print a line, perhaps a few more, and exit."""
    line = "cudaCheckError() failed : no kernel image is available for execution on the device\n"
    for ends_badly, behind, expected in (
        (DEAD, 0, 1),
        (DEAD, 5, 1),
        (DEAD, 6, 0),
        (replace(DEAD, exit_code=0), 0, None),
    ):
        answers = readings_of(
            answer(RankEvidence(rank=3, status=ends_badly, log_tail=line + "closing files\n" * behind))
        )
        found = [e.signature for reading in answers for e in reading.events if e.role is Role.ROOT]
        assert (found if answers else None) == (None if expected is None else ["cuda.no_kernel_image"] * expected)
    told_to_go = replace(DEAD, exit_code=None, signal="SIGTERM")
    [reading] = readings_of(answer(RankEvidence(rank=3, status=told_to_go, log_tail=line)))
    assert not reading.events


def test_a_lost_connection_is_known_as_one() -> None:
    [reading] = readings_of(answer(RankEvidence(rank=3, status=DEAD, log_tail=CLOSED)))
    assert [d.is_collective_error for d in reading.deaths] == [True]


NCCL_FAILED = traceback(
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, "
    "invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9\n"
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n{}"
)
DUPLICATE = "Duplicate GPU detected : rank 3 and rank 0 both on CUDA device 80"
WARNING = f"gpu1:77:77 [0] init.cc:900 NCCL WARN {DUPLICATE}\n"


def test_the_reason_that_nccl_gives_is_known_from_the_last_error_of_the_exception() -> None:
    one = RankEvidence(rank=3, status=DEAD, log_tail=NCCL_FAILED.format(DUPLICATE))
    [reading] = readings_of(answer(one))
    assert "nccl.duplicate_gpu" in {e.signature for e in reading.events}


def test_the_reason_that_nccl_gives_is_known_from_its_warning_in_the_output_or_in_its_own_log() -> None:
    words = NCCL_FAILED.format("")
    one = RankEvidence(rank=3, status=DEAD, log_tail=WARNING + words)
    [reading] = readings_of(answer(one))
    assert "nccl.duplicate_gpu" in {e.signature for e in reading.events}
    apart = RankEvidence(rank=3, status=DEAD, log_tail=words, nccl_log_tail=WARNING)
    _, log = readings_of(answer(apart))
    assert [(e.signature, e.origin.rank) for e in log.events] == [("nccl.duplicate_gpu", 3)]
    assert log.source.path == "attempt0/node1/rank3/nccl.log"


def test_a_warning_of_nccl_explains_neither_a_living_rank_nor_an_error_of_the_script() -> None:
    assert readings_of(answer(RankEvidence(rank=3, status=ALIVE, nccl_log_tail=WARNING))) == []
    [reading] = readings_of(
        answer(RankEvidence(rank=3, status=DEAD, log_tail=WARNING + traceback("ValueError: bad shard")))
    )
    assert not reading.events


def test_a_rank_on_its_way_out_is_heard_if_its_error_is_the_last_thing_it_said() -> None:
    ending = RankStatus(rank=3, pid=77, process_state=ProcessState.SLEEPING, phase="ending", site_since_s=90.0)
    text = traceback("ValueError: bad shard")
    [reading] = readings_of(answer(RankEvidence(rank=3, status=ending, log_tail=text)))
    assert [d.time_s for d in reading.deaths] == [90.0]
    went_on = text + "".join(f"step {i} loss 0.1\n" for i in range(20))
    [reading] = readings_of(answer(RankEvidence(rank=3, status=ending, log_tail=went_on)))
    assert not reading.deaths


def test_the_kernel_s_words_count_for_ranks_of_this_node_only() -> None:
    line = "[1234.5] Out of memory: Killed process {} (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB"
    killed = RankStatus(rank=3, pid=77, process_state=ProcessState.KILLED, signal="SIGKILL", ended_s=100.0)
    one = RankEvidence(rank=3, status=killed)
    found = readings_of(answer(one, kernel_lines=(line.format(77), line.format(4242))))
    assert [(d.rank, d.kind) for r in found for d in r.deaths] == [(3, "oom")]


def test_nothing_that_an_agent_sends_breaks_the_reading() -> None:
    one = RankEvidence(rank=3, status=DEAD, stack="\x00\udcff[{", ring="[[[", dump="A" * 7, log_tail="\udcff" * 50)
    found = readings_of(answer(one, ras="{broken", kernel_lines=("\x00",)))
    assert all(not r.dumps and not r.deaths for r in found)


def test_what_a_library_wrote_right_before_its_end_names_the_cause_and_what_the_rank_outlived_does_not() -> None:
    """JAX names the task without heartbeats in one line, and ends the process by another."""
    named = (
        "E1120 17:0{}:06.190845    4005 coordination_service.cc:1549] [36] Use error polling to propagate the "
        "following error to all tasks: UNAVAILABLE: "
        "The following tasks are unhealthy (stopped sending heartbeats):\n1\n"
        "The tasks have crashed. Check the task logs for an earlier error.\n"
    )
    end = (
        "F1120 17:02:06.191887    4022 client.h:80] Terminating process because the JAX distributed service detected "
        "fatal errors. This most likely indicates that another task died; see the other task logs for more details. "
        "Disable Python buffering, i.e. `python -u`, to be sure to see all the previous output.\n"
    )
    aborted = replace(DEAD, exit_code=None, signal="SIGABRT")
    for minute, expected in ((2, {"1"}), (0, set())):
        words = named.format(minute) + end
        [reading] = readings_of(answer(RankEvidence(rank=3, status=aborted, log_tail=words)))
        assert {e.values["ranks"] for e in reading.events if e.values.get("ranks")} == expected, minute


def test_a_process_that_a_library_aborts_after_its_collective_failed_has_the_place_of_the_call() -> None:
    """JAX ends all processes at once when one is gone; some have raised by then."""
    raised = (
        'Traceback (most recent call last):\n  File "/home/u/train.py", line 10, in metric\n    small(x)\n'
        "ValueError: UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed "
        "by peer [127.0.0.1]:2741\n"
    )
    end = (
        "F1120 17:02:06.191887    4022 client.h:80] Terminating process because the JAX distributed service detected "
        "fatal errors. This most likely indicates that another task died; see the other task logs for more details.\n"
    )
    aborted = replace(DEAD, exit_code=None, signal="SIGABRT")
    [reading] = readings_of(answer(RankEvidence(rank=3, status=aborted, log_tail=raised + end)))
    [death] = reading.deaths
    assert (death.kind, str(death.site)) == ("abort", "/home/u/train.py:10 metric")


def test_the_output_of_a_rank_that_left_without_a_traceback_has_its_last_line() -> None:
    [reading] = readings_of(answer(RankEvidence(rank=3, status=DEAD, log_tail="starting\nbad config\n\n")))
    assert not reading.deaths
    assert (reading.source.rank, reading.source.last_line) == (3, "bad config")


def test_what_nccl_logged_of_calls_is_of_the_rank_whose_log_it_is() -> None:
    stream = replace(made([AR] * 3, 3), origin=Origin(source="/x/nccl.log", host="gpu1", pid=5))
    process = ProcessRecord(host="gpu1", pid=5, interfaces=(("eth0", "10.0.0.2"),))
    text = encoded(NcclRecord(processes=(process,), op_streams=(stream,)))
    [reading] = readings_of(answer(RankEvidence(rank=3, status=ALIVE, nccl_record=text)))
    assert [(p.rank, p.node, p.interfaces) for p in reading.processes] == [(3, "node1", process.interfaces)]
    assert [(s.origin.rank, s.origin.node, s.num_operations) for s in reading.op_streams] == [(3, "node1", 3)]
    assert reading.source.path == "attempt0/node1/rank3/nccl.log"
    for nonsense in ("{", '{"processes": 3}', " " * 100_000):
        [reading] = readings_of(answer(RankEvidence(rank=3, status=ALIVE, nccl_record=nonsense)))
        assert reading.source.problem, nonsense[:20]
        assert not reading.processes


def test_logged_calls_that_cannot_be_joined_cost_only_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    process = ProcessRecord(host="gpu1", pid=103, interfaces=(("eth0", "10.0.0.2"),))
    text = encoded(NcclRecord(processes=(process,), op_streams=(made([AR] * 3, 3),)))
    words = traceback("ValueError: bad shard")
    readings = readings_of(answer(RankEvidence(rank=3, status=DEAD, log_tail=words, nccl_record=text)))
    assert [p.interfaces for p in assembled(readings, LoggedCalls()).processes if p.interfaces] == [process.interfaces]
    genuine = LoggedCalls.of
    for error in (IndexError("index 9 is out of bounds"), MemoryError()):

        def of(self: LoggedCalls, streams: Any, processes: Any, error: Exception = error) -> Any:
            if streams:
                raise error
            return genuine(self, streams, processes)

        with monkeypatch.context() as patch:
            patch.setattr(LoggedCalls, "of", of)
            run = assembled(readings, LoggedCalls())
        assert [d.text for d in run.deaths] == ["ValueError: bad shard"]
        problems = {s.path: s.problem for s in run.sources if s.problem}
        assert list(problems) == ["attempt0/node1/rank3/nccl.log"]
        assert type(error).__name__ in (problems["attempt0/node1/rank3/nccl.log"] or "")


def test_an_error_that_has_nothing_to_do_with_logged_calls_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(*_: object) -> None:
        raise ValueError("of another reason")

    monkeypatch.setattr(LoggedCalls, "of", of)
    with pytest.raises(ValueError, match="another reason"):
        assembled([], LoggedCalls())
