"""The judge with made-up jobs: who is accused, when, and when no rank is."""

from collections.abc import Collection
from itertools import groupby
from typing import Any

import pytest
from msgspec.structs import replace

from allready.live.monitor.monitor import GATHER_AGAIN_S
from allready.model import GroupMark, Loss, LossReason, NodeStatus, Report, Status, Verdict
from allready.model.process import SystemCall
from tests.cases import cases
from tests.live.monitor.made import CLOSED, STACK, Play, call_at, codes, traceback

pytestmark = pytest.mark.thorough


def verdict(report: Report | None) -> Verdict:
    assert report is not None
    assert report.verdict is not None
    return report.verdict


def accused(report: Report | None) -> tuple[str, tuple[int, ...]]:
    found = verdict(report)
    return found.fault_class.value, found.culprits.ranks


def test_a_moving_job_is_healthy_and_nobody_is_asked_anything() -> None:
    job = Play()
    report = job.play(20)
    assert report is not None
    assert (report.status, report.verdict, job.numbers) == (Status.HEALTHY, None, [])
    assert len(job.reports) == 1, "one report, since nothing changed"


def test_a_stopped_rank_is_named_within_seconds_with_the_moment_it_stopped() -> None:
    job = Play()
    job.play(10)
    job.stick(2)
    job.rank[2] = {"process_state": "stopped"}
    stopped = job.now
    report = job.play(4)
    assert accused(report) == ("CPU-STUCK", (2,))
    assert verdict(report).sentence.startswith("rank 2 (gpu1")
    assert job.reports[-1].duration_s is not None
    found = verdict(report).detect_s
    assert found is not None
    assert 0.8 <= found <= 2.0
    assert job.now - stopped >= found


@cases("busy_s", [1.0, 2.0, 8.0, 30.0])
def test_a_rank_that_computes_is_waited_for_and_then_forgotten(busy_s: float) -> None:
    job = Play()
    job.play(10)
    job.stick(1)
    job.rank[1] = {"process_state": "running", "cpu_share": 1.0}
    during = job.play(busy_s)
    assert during is not None
    assert during.status in {Status.HEALTHY, Status.WAITING}
    if busy_s >= 8:
        assert accused(during) == ("CPU-BUSY", (1,))
    job.rank.clear()
    job.go_on()
    after = job.play(6)
    assert after is not None
    assert (after.status, after.verdict) == (Status.HEALTHY, None)
    assert not any(codes(r) for r in job.reports)


def differing(dumps: dict[int, Any] | None) -> Play:
    """A job whose rank 3 calls another operation than the others; its recorders' rings know no lines."""
    job = Play(is_paced=False, dumps=dumps)
    job.play(10)
    job.odd[3] = {job.seq + 1: {"name": "broadcast", "size": 1}}
    job.seen = {rank: {"stack": ""} for rank in range(4)}
    job.stick()
    return job


def test_the_lines_of_calls_that_differ_are_asked_for_at_once_and_stand_in_the_first_verdict() -> None:
    job = differing(dict.fromkeys(range(4), call_at(12)) | {3: call_at(19)})
    job.play(4)
    first = next(r for r in job.reports if r.status is Status.FAULT)
    assert accused(first) == ("DESYNC-FLOW", (3,))
    assert "train.py:19" in verdict(first).sentence
    assert "train.py:12" in verdict(first).sentence
    asked, again = job.asked[:2]
    assert again - asked < GATHER_AGAIN_S[0]


@cases("dumps", [None, {}])
def test_calls_that_differ_are_named_without_their_lines_where_there_are_none(dumps: dict[int, Any] | None) -> None:
    job = differing(dumps)
    job.play(6)
    first = next(r for r in job.reports if r.status is Status.FAULT)
    assert accused(first) == ("DESYNC-FLOW", (3,))
    assert "train.py" not in verdict(first).sentence


def test_what_may_end_by_itself_counts_after_the_time_that_was_asked_for() -> None:
    job = Play(hang_after_s=6.0)
    job.play(10)
    job.stick(3)
    job.seen[3] = {"syscall": SystemCall(name="clock_nanosleep")}
    waiting = job.play(4)
    assert waiting is not None
    assert waiting.status is Status.WAITING
    report = job.play(5)
    assert report is not None
    assert (report.status, *accused(report)) == (Status.FAULT, "CPU-STUCK", (3,))


def test_a_hang_that_goes_by_is_healthy_again_and_noted() -> None:
    job = Play(hang_after_s=4.0)
    job.play(10)
    job.stick(3)
    job.seen[3] = {"syscall": SystemCall(name="clock_nanosleep")}
    assert verdict(job.play(8)).culprits.ranks == (3,)
    job.go_on()
    report = job.play(5)
    assert report is not None
    assert (report.status, report.verdict) == (Status.HEALTHY, None)
    assert any("rank 3" in note for note in report.notes)


def test_the_first_exception_is_the_cause_and_lost_connections_are_not() -> None:
    job = Play()
    job.play(10)
    job.end(2, 1, log=traceback("ValueError: bad sample in shard 17"))
    job.stick(2)
    job.now += 0.05
    for rank in (0, 1, 3):
        job.end(rank, 1, log=CLOSED)
    report = job.play(4)
    assert accused(report) == ("DEAD", (2,))
    assert "bad sample in shard 17" in verdict(report).sentence


def test_a_victim_whose_words_have_not_come_is_not_accused_in_the_meantime() -> None:
    job = Play()
    job.play(10)
    job.stick(2)
    job.end(0, 1, log=CLOSED)
    job.silent = {1}  # the node on which the cause is says nothing for a while
    job.play(2)
    assert not any(codes(r) for r in job.reports)
    job.silent = set()
    job.end(2, None, "SIGKILL")
    assert accused(job.play(4)) == ("DEAD", (2,))


def test_the_end_of_everybody_by_sigterm_is_planned() -> None:
    job = Play()
    job.play(10)
    for rank in range(4):
        job.end(rank, None, "SIGTERM")
        job.play(0.2)
    job.play(3)
    report = job.judge.finish(job.now, job.wall_s)
    assert (report.status, report.verdict) == (Status.HEALTHY, None)
    assert not any(codes(r) for r in job.reports)


def test_ranks_that_were_told_to_end_and_had_to_be_killed_are_no_culprits() -> None:
    job = Play()
    job.play(10)
    job.judge.take_end("ended by SIGINT", job.wall_s)
    job.end(0, 1, log=traceback("KeyboardInterrupt"))
    job.play(1)
    for rank in (1, 2, 3):
        job.end(rank, None, "SIGKILL")
    job.play(3)
    report = job.judge.finish(job.now, job.wall_s)
    assert (report.status, report.verdict) == (Status.HEALTHY, None)


def test_ranks_that_end_one_after_the_other_make_no_alarm() -> None:
    job = Play()
    job.play(10)
    for rank in range(4):
        job.end(rank, 0)
        job.play(0.6)
    report = job.judge.finish(job.now, job.wall_s)
    assert (report.status, report.verdict) == (Status.HEALTHY, None)
    assert not any(codes(r) for r in job.reports)


def test_who_leaves_early_with_exit_code_0_is_named() -> None:
    job = Play()
    job.play(10)
    job.stick(1)
    job.end(1, 0)
    assert accused(job.play(5)) == ("DESYNC-FLOW", (1,))


def test_a_zombie_says_how_it_ended_once_its_parent_knows() -> None:
    job = Play()
    job.play(20)
    job.stick(3)
    job.end(3, exit_code=None, process_state="zombie", ended_s=None)
    job.play(2)
    assert not any(r.verdict and r.status is Status.FAULT for r in job.reports)
    job.end(3, exit_code=0)
    assert (verdict(job.play(3)).fault_class, accused(job.judge.last)[1]) == ("DESYNC-FLOW", (3,))
    job = Play()
    job.play(20)
    job.stick(3)
    job.end(3, exit_code=None, process_state="zombie", ended_s=None)
    found = verdict(job.play(10))  # a parent that never asks
    assert (found.code, found.fault_class, found.culprits.ranks) == ("LIV007", "DEAD", (3,))


def test_the_first_explanation_stays_when_victims_die_of_it() -> None:
    job = Play()
    job.play(10)
    job.stick(2)
    job.rank[2] = {"process_state": "stopped"}
    first = verdict(job.play(4))
    for rank in (0, 1, 3):
        job.end(rank, 1, log=CLOSED)
    job.play(4)
    job.end(2, None, "SIGKILL")
    job.play(4)
    last = job.judge.finish(job.now, job.wall_s)
    assert accused(last) == ("CPU-STUCK", (2,))
    assert verdict(last).detected_time == first.detected_time


def test_scary_lines_of_a_rank_that_lives_accuse_nobody() -> None:
    job = Play()
    job.play(10)
    scary = "gpu1:7:7 [0] NCCL WARN socketProgress: Connection closed by remote peer\nNVRM: Xid (PCI:0000:01:00): 79\n"
    job.seen[0] = {"log_tail": scary}
    job.stick(2)
    job.rank[2] = {"process_state": "stopped"}
    report = job.play(5)
    assert accused(report) == ("CPU-STUCK", (2,))
    assert report is not None
    assert all(0 not in f.culprits.ranks for f in report.findings)


def test_scary_lines_before_an_innocent_rank_s_end_accuse_nobody() -> None:
    job = Play()
    job.play(10)
    scary = "NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.\n"
    scary += "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    job.stick(2)
    job.end(0, 1, log=scary + CLOSED)
    job.end(2, None, "SIGKILL")
    assert accused(job.play(4)) == ("DEAD", (2,))


SKIPPED = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15 GiB\n"
"""Of a batch that was skipped; what the process wrote afterwards does not show that it went on."""


def test_a_known_error_among_the_last_lines_explains_the_first_that_ended_and_is_likely() -> None:
    job = Play()
    job.play(10)
    job.stick(2)
    job.end(2, 1, log=SKIPPED + "leaving\n")
    job.play(1)
    for rank in (0, 1, 3):
        job.end(rank, 1, log=SKIPPED + "leaving\n")
    found = verdict(job.play(4))
    assert (found.code, tuple(found.culprits.ranks), str(found.confidence)) == ("CUD001", (2,), "likely")


def test_a_known_error_among_the_last_lines_explains_no_end_that_another_brought_about() -> None:
    for signal, words in (("SIGKILL", ""), (None, traceback("ValueError: bad sample in shard 17"))):
        job = Play()
        job.play(10)
        job.stick(2)
        job.end(2, None if signal else 1, signal, log=words)
        job.play(1)
        for rank in (0, 1, 3):
            job.end(rank, 1, log=SKIPPED + "leaving\n")
        assert accused(job.play(4)) == ("DEAD", (2,))
        assert verdict(job.judge.last).code == ("DTH002" if signal else "DTH001")


def test_a_known_error_among_the_last_lines_explains_no_end_that_was_asked_for_and_none_of_a_lost_peer() -> None:
    job = Play()
    job.play(10)
    job.judge.take_end("signal", job.wall_s)
    job.play(1)
    for rank in range(4):
        job.end(rank, 1, log=SKIPPED + "got SIGTERM, saving\n")
    report = job.play(4)
    assert report is None or report.verdict is None
    job = Play()
    job.play(10)
    job.stick(2)
    job.end(2, 1, log=SKIPPED + "collective failed: [pair.cc:553] Connection closed by peer [127.0.0.1]:44720\n")
    report = job.play(4)
    assert report is None or report.verdict is None or report.verdict.code != "CUD001"


def test_silently_different_types_are_told_while_the_job_goes_on() -> None:
    job = Play()
    job.play(10)
    job.odd[3] = {job.seq + 5: {"dtype": "Int"}}
    report = job.play(5)
    assert accused(report) == ("DESYNC-ARGS", (3,))
    later = job.play(60)
    assert accused(later) == ("DESYNC-ARGS", (3,)), "rings forget, the verdict does not"


def test_another_operation_under_the_same_number_is_told_with_both() -> None:
    job = Play()
    job.play(10)
    job.odd[1] = {job.seq + 1: {"name": "broadcast"}}
    job.stick()
    report = job.play(5)
    assert accused(report) == ("DESYNC-FLOW", (1,))
    assert "broadcast" in verdict(report).sentence
    assert "all_reduce" in verdict(report).sentence


def test_a_silent_node_is_not_judged_as_a_stuck_rank() -> None:
    job = Play()
    job.play(10)
    job.stick(2)
    job.silent = {1}
    job.play(1)
    report = job.play(6)
    assert report is not None
    assert not any(f.code.startswith("LIV") for f in report.findings)
    assert any(n.node == 1 for n in report.not_checked)


@cases(
    ("late", "answering", "goes_on", "verdict_after"),
    [(3, {1}, False, "LIV006"), (0, {1}, False, "LIV006"), (3, (), False, None), (3, {1}, True, None)],
)
def test_a_wait_that_cannot_be_seen_for_a_silent_agent_stays_the_best_explanation(
    late: int, answering: Collection[int], goes_on: bool, verdict_after: str | None
) -> None:
    job = Play()
    job.play(10)
    job.stick(late)
    job.seen[late] = {"syscall": SystemCall(name="clock_nanosleep")}
    assert verdict(job.play(6)).code == "LIV006"
    job.silent = {1}
    job.judge.take_answering(answering)
    if goes_on:
        job.go_on()
    report = job.play(3.6)
    assert report is not None
    assert (report.verdict.code if report.verdict is not None else None) == verdict_after
    assert any(n.node == 1 for n in report.not_checked)
    assert report.status is (Status.UNKNOWN if verdict_after is None else Status.WAITING)


def test_the_last_report_says_whose_agent_fell_silent() -> None:
    job = Play()
    job.play(10)
    job.silent = {1}
    job.judge.lose(1, Loss(reason=LossReason.AGENT_SILENT, silent_s=15.0), job.now)
    for rank in (0, 1):
        job.end(rank, signal="SIGTERM")
    job.play(3)
    report = job.judge.finish(job.now, job.wall_s)
    [silent] = (item for item in report.not_checked if item.code == "status")
    assert (silent.node, silent.why) == (1, "no heartbeat for 15 s; its machine answers, its agent does not")


def test_a_lost_connection_is_told() -> None:
    job = Play()
    job.play(5)
    job.silent = {1}
    job.judge.lose(1, Loss(reason=LossReason.CLOSED, text="reset"), job.now)
    report = job.play(3)
    assert report is not None
    assert report.status is not Status.HEALTHY


def test_another_attempt_begins_without_the_last_one_s_verdict() -> None:
    job = Play()
    job.play(10)
    job.stick(2)
    job.rank[2] = {"process_state": "stopped"}
    assert job.play(4) is not None
    fresh: NodeStatus = replace(Play().status(0), attempt=1, time_s=job.wall_s)
    job.judge.take_status(fresh, job.now, job.wall_s)
    report = job.judge.judge(job.now + 2, job.wall_s + 2)
    assert report is not None
    assert (report.status, report.verdict) == (Status.HEALTHY, None)


def test_evidence_is_asked_for_at_once_and_then_less_and_less_often() -> None:
    job = Play()
    job.play(10)
    job.stick(2)
    job.rank[2] = {"process_state": "running", "cpu_share": 1.0}
    job.play(10)
    early = len(job.numbers)
    job.play(50)
    assert 3 <= early <= 7
    assert len(job.numbers) - early <= 6
    assert job.numbers == sorted(set(job.numbers))


def test_garbage_from_an_agent_is_a_problem_of_its_source() -> None:
    job = Play()
    job.play(10)
    job.stick(2)
    job.seen[1] = {"stack": "\x00" * 1000, "ring": "{[" * 5000, "dump": "not base64!", "log_tail": "\udcff" * 99}
    job.rank[2] = {"process_state": "stopped"}
    assert accused(job.play(4)) == ("CPU-STUCK", (2,))


def test_a_report_without_any_word_says_nothing() -> None:
    assert Play().judge.judge(1.0, 2.0) is None


def test_a_rank_that_gets_stuck_after_long_work_is_looked_at_again() -> None:
    job = Play()
    job.play(10)
    job.stick(2)
    job.rank[2] = {"process_state": "running", "cpu_share": 1.0, "site_since_s": None}
    job.play(40)
    asked = len(job.numbers)
    job.rank[2] = {"cpu_share": 0.0, "site_since_s": job.wall_s}
    job.seen[2] = {"syscall": SystemCall(name="futex")}
    report = job.play(6)
    assert len(job.numbers) > asked
    assert accused(report) == ("CPU-STUCK", (2,))
    assert verdict(report).code == "LIV003"


def test_what_an_old_answer_shows_of_ranks_that_have_not_moved_still_holds() -> None:
    """Nothing records how far ranks of JAX came, and the later questions are a minute apart."""
    job = Play(world_size=2)
    plain = {"groups": (), "framework": "jax", "main_cpu_s": 3.0, "cpu_share": 0.0, "num_operations": 0}
    job.rank = {0: plain, 1: plain}
    job.play(4)
    job.stick(1)
    job.seen = {1: {"syscall": SystemCall(name="clock_nanosleep")}}
    job.reports.clear()
    report = job.play(100)
    assert [key for key, _ in groupby(r.status for r in job.reports)] == [Status.WAITING, Status.FAULT]
    assert verdict(report).code == "LIV006"
    assert accused(report) == ("CPU-STUCK", (1,))


def test_a_log_that_is_written_a_moment_after_the_end_is_read_again() -> None:
    job = Play()
    job.play(10)
    job.end(2, 1, log="step 12\n")
    job.stick(2)
    job.play(0.3)
    job.seen[2]["log_tail"] = traceback("ValueError: bad sample in shard 17")
    report = job.play(2)
    assert [r.verdict.code for r in job.reports if r.verdict is not None] == ["DTH001"]
    assert "bad sample in shard 17" in verdict(report).sentence


def test_an_end_without_a_word_is_told_all_the_same() -> None:
    job = Play()
    job.play(10)
    job.end(2, 1, log="step 12\n")
    job.stick(2)
    assert accused(job.play(2.5)) == ("DEAD", (2,))


def test_after_a_recovery_nothing_of_the_former_group_holds() -> None:
    """The runtime library's ranks went on without one that stopped; it comes back, and stops once more."""
    job = Play()
    job.rank = {r: {"epoch": 1} for r in range(4)}
    job.play(10)
    job.stick(2)
    job.rank[2] |= {"process_state": "stopped"}
    first = verdict(job.play(2))
    job.go_on()
    marks = (mark_of(job, (0, 1, 3)),)
    job.rank |= {r: {"epoch": 2, "groups": marks} for r in (0, 1, 3)}
    report = job.play(0.6)  # it stands outside, and no rank waits for it
    assert report is not None
    assert (report.status, report.verdict) == (Status.HEALTHY, None)
    assert any("rank 2" in note and note.endswith("then the job recovered") for note in report.notes)
    job.rank = {r: {"epoch": 3} for r in range(4)}
    job.play(0.2)
    job.stick(2)
    job.rank[2] |= {"process_state": "stopped"}
    second = verdict(job.play(2))
    assert (second.code, second.culprits) == (first.code, first.culprits)
    assert second.detected_time != first.detected_time


def test_the_same_rank_that_stops_once_more_is_told_again_at_once() -> None:
    """Nothing was well for long enough to say so."""
    job = Play()
    job.play(10)
    told = []
    for _ in range(2):
        job.stick(2)
        job.rank[2] = {"process_state": "stopped"}
        told.append(verdict(job.play(2)))
        job.go_on()
        job.rank.clear()
        job.play(0.6)
    assert told[0].culprits == told[1].culprits
    assert told[0].detected_time != told[1].detected_time


def test_what_did_not_match_in_a_group_that_was_formed_again_is_over() -> None:
    job = Play()
    job.rank = {r: {"epoch": 1} for r in range(4)}
    job.odd[3] = {41: {"size": 7}}
    assert accused(job.play(10)) == ("DESYNC-ARGS", (3,))
    job.odd.clear()
    job.rank = {r: {"epoch": 2} for r in range(4)}
    report = job.play(2)
    assert report is not None
    assert (report.status, report.verdict) == (Status.HEALTHY, None)


def test_an_answer_to_a_question_from_before_a_recovery_is_not_taken() -> None:
    job = Play()
    job.rank = {r: {"epoch": 1} for r in range(4)}
    job.play(10)
    job.stick(2)
    job.rank[2] |= {"process_state": "stopped"}
    job.play(2)
    late = job.answer(1, job.numbers[-1])
    job.go_on()
    job.rank = {r: {"epoch": 2} for r in range(4)}
    job.play(0.6)
    job.judge.take_evidence(late, job.now)
    assert not job.judge._board.answers
    job.stick(3)
    job.rank[3] |= {"process_state": "stopped"}
    assert verdict(job.play(2)).culprits.ranks == (3,)
    assert job.judge._board.answers


def test_a_recovery_that_is_told_with_the_end_of_the_job_takes_no_verdict_away() -> None:
    job = Play()
    job.rank = {r: {"epoch": 1} for r in range(4)}
    job.play(10)
    job.end(1, exit_code=None, signal="SIGKILL", log="last words", epoch=1)
    job.stick(1)
    first = verdict(job.play(3))
    assert first.culprits.ranks == (1,)
    for rank in (0, 2, 3):
        job.end(rank, epoch=2)
    for node in job.nodes:
        job.judge.take_status(job.status(node), job.now, job.wall_s)
    last = verdict(job.judge.finish(job.now, job.wall_s))
    assert (last.code, last.culprits, last.detected_time) == (first.code, first.culprits, first.detected_time)


def test_where_a_script_begins_with_the_library_anew_its_recoveries_are_told_as_before() -> None:
    job = Play()
    for epoch in (3, 1):
        job.rank = {r: {"epoch": epoch} for r in range(4)}
        job.play(5)
    job.stick(2)
    job.rank[2] |= {"process_state": "stopped"}
    assert verdict(job.play(2)).culprits.ranks == (2,)
    job.go_on()
    job.rank = {r: {"epoch": 2} for r in range(4)}
    report = job.play(0.6)
    assert report is not None
    assert (report.status, report.verdict) == (Status.HEALTHY, None)


def left(job: Play, node: int) -> set[int]:
    """Ranks of which an answer that comes now is not believed."""
    answer = job.answer(node, 99)
    kept = job.judge.without_moved(answer)
    return {one.rank for one in answer.ranks} - {
        one.rank for one in (kept.ranks if kept else ()) if one in answer.ranks
    }


def test_an_answer_shows_who_has_left_the_place_of_the_last_words() -> None:
    """As a signal to the ranks makes them: what their stacks show then is no reason of the hang."""
    at_exit = '  File "/x/site-packages/jax/_src/distributed.py", line 199 in shutdown'
    handler = '  File "/home/u/train.py", line 31 in save\n  File "/home/u/train.py", line 14 in <module>'
    job = Play()
    job.stick(2)
    job.play(3)
    assert [left(job, n) for n in job.nodes] == [set(), set()]
    beside = '  File "/home/u/train.py", line 50 in on_sigterm\n  File "/home/u/train.py", line 30 in save'
    for frames in (at_exit, handler, beside):
        job.seen[2] = {"stack": STACK.format(pid=1002, rank=2, frames=frames)}
        assert [left(job, n) for n in job.nodes] == [set(), {2}]
    job.rank[2] = {"site_since_s": job.wall_s - 0.1}
    job.play(0.2)
    assert not left(job, 1), "a loop goes through its lines"
    job.seen[2] = {"stack": STACK.format(pid=1002, rank=2, frames=at_exit)}
    assert left(job, 1) == {2}
    job.seen[2] = {"stack": "", "why_no_stack": "it has ended"}
    assert not left(job, 1)


def test_what_an_answer_shows_of_ranks_that_stayed_counts_also_where_another_one_moved() -> None:
    job = Play()
    job.stick(2)
    job.play(3)
    before = {one.rank: one for one in job.answer(1, 98).ranks}
    elsewhere = '  File "/x/site-packages/jax/_src/distributed.py", line 199 in shutdown'
    job.seen[2] = {"stack": STACK.format(pid=1002, rank=2, frames=elsewhere)}
    job.rank[2] = {"phase": "closing"}
    job.seen[3] = {"log_tail": "the newest line"}
    kept = job.judge.without_moved(job.answer(1, 99))
    assert kept is not None
    seen = {one.rank: one for one in kept.ranks}
    assert seen[3].log_tail == "the newest line"
    assert 2 not in seen or seen[2].stack == before[2].stack
    assert next(r for r in kept.status.ranks if r.rank == 2).phase != "closing", "the word from before holds"
    job.seen[3] = {"stack": STACK.format(pid=1003, rank=3, frames=elsewhere)}
    assert job.judge.without_moved(job.answer(1, 99)) is None


def mark_of(job: Play, members: tuple[int, ...]) -> GroupMark:
    return GroupMark(
        group="1", label="default_pg", members=members, enqueued=5, completed=5, moved_s=job.wall_s + 100.0
    )
