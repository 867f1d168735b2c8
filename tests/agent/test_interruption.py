"""What a signal leaves of a report: the verdict of the moment before, and nothing that the end itself brought about."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from allready.agent import messages
from allready.agent.closing import closed, leave_for_relay
from allready.agent.context import AgentState
from allready.agent.entry import NodeJob
from allready.agent.node_report import NodeReport
from allready.agent.nodes import HANDLES_S, NodeTable
from allready.agent.supervisor import _ended_ranks
from allready.judging.interruption import SAME_SHUTDOWN_S, Interruption, ReportHistory, better_of, interrupted
from allready.launch.log_relay import LAST_REPORT, put_report
from allready.model import (
    Confidence,
    Culprits,
    EndCause,
    FaultClass,
    Finding,
    GroupPosition,
    Happening,
    JobOutcome,
    NodeStatus,
    Phrase,
    ProcessState,
    RankRow,
    RankStatus,
    Report,
    RunEvent,
    RunSummary,
    Severity,
    StackGroup,
    Status,
    TimelineEvent,
    Verdict,
    World,
)
from allready.model.process import end_of
from allready.preflight.check.report_series import ReportSeries
from allready.report.json_report import decode, encode

AT_S = 1_000.0
CTRL_C = Interruption(signal="SIGINT", node=1, time_s=AT_S)
FAILED = JobOutcome(exit_code=1, outcome=EndCause.EXIT_CODE, attempts=1)
STOPPED = JobOutcome(exit_code=130, outcome=EndCause.STOPPED, attempts=1)
GOOD = JobOutcome(exit_code=0, outcome=EndCause.SUCCESS, attempts=1)


def report(status: Status, severity: Severity | None = None, sentence: str = "rank 1 sleeps") -> Report:
    findings: tuple[Finding, ...] = ()
    verdict = None
    if severity is not None:
        found = Finding(
            code="LIV006",
            severity=severity,
            fault_class=FaultClass.CPU_STUCK,
            confidence=Confidence.LIKELY,
            culprits=Culprits(ranks=(1,)),
            message=sentence,
            remedy="look",
            evidence=(),
        )
        findings = (found,)
        verdict = Verdict(
            code=found.code,
            fault_class=found.fault_class,
            confidence=found.confidence,
            culprits=found.culprits,
            sentence=sentence,
            remedy="look",
            fault_time=None,
            detected_time="2026-01-01T00:00:00+00:00",
            detect_s=1.0,
        )
    return Report(
        tool_version="0",
        command="run",
        started=datetime.now(UTC).isoformat(),
        duration_s=1.0,
        world=World(num_nodes=2, world_size=2),
        status=status,
        verdict=verdict,
        findings=findings,
        not_checked=(),
    )


HEALTHY = report(Status.HEALTHY)
WAITING = report(Status.WAITING, Severity.WARNING)
FAULT = report(Status.FAULT, Severity.ERROR, "rank 1 is stopped")


def node(offset_s: float = 0.0, **ends: tuple[str, float]) -> NodeStatus:
    """Ranks that a signal ended: rank0=("SIGTERM", when)."""
    ranks = tuple(
        RankStatus(rank=int(name[4:]), process_state=ProcessState.KILLED, signal=signal, ended_s=ended_s)
        for name, (signal, ended_s) in ends.items()
    )
    return NodeStatus(node_rank=0, name="gpu0", time_s=AT_S, ranks=ranks, clock_offset_s=offset_s)


# When it began


def test_a_shutdown_begins_with_the_signal_that_we_get() -> None:
    assert CTRL_C.began_s([]) == AT_S
    assert CTRL_C.began_s([node(rank0=("SIGTERM", AT_S + 0.1))]) == AT_S


def test_ranks_that_the_scheduler_hit_first_tell_when_it_really_began() -> None:
    assert CTRL_C.began_s([node(rank0=("SIGTERM", AT_S - 0.4), rank1=("SIGINT", AT_S - 0.7))]) == AT_S - 0.7


def test_ends_are_compared_on_node_0s_clock() -> None:
    assert CTRL_C.began_s([node(3600.0, rank0=("SIGTERM", AT_S - 0.5 + 3600.0))]) == AT_S - 0.5


def test_an_end_of_another_kind_or_long_before_is_no_part_of_the_shutdown() -> None:
    killed = node(rank0=("SIGKILL", AT_S - 0.4), rank1=("SIGTERM", AT_S - SAME_SHUTDOWN_S - 1.0))
    assert CTRL_C.began_s([killed]) == AT_S


def test_a_rank_that_is_just_gone_was_reached_before() -> None:
    """A sample may see a zombie before it is known how it ended."""
    ranks = (RankStatus(rank=0, process_state=ProcessState.ZOMBIE), RankStatus(rank=1))
    gone = NodeStatus(node_rank=0, name="gpu0", time_s=AT_S - 0.2, ranks=ranks)
    assert AT_S - SAME_SHUTDOWN_S < CTRL_C.began_s([gone]) < AT_S - 0.5
    assert CTRL_C.began_s([replace(gone, ranks=ranks[1:])]) == AT_S
    assert CTRL_C.began_s([replace(gone, time_s=AT_S - 60.0)]) == AT_S


def test_ranks_that_leave_after_a_warning_are_its_effect_for_a_while() -> None:
    warning = Interruption(signal="SIGUSR1", node=0, time_s=AT_S)
    end = RankStatus(rank=0, process_state=ProcessState.EXITED, exit_code=0, ended_s=AT_S + 300.0)
    of = NodeStatus(node_rank=0, name="gpu0", time_s=AT_S, ranks=())
    assert not warning.has_effect([replace(of, ranks=(RankStatus(rank=0),))])
    assert warning.has_effect([replace(of, ranks=(end,))])
    assert not warning.has_effect([replace(of, ranks=(replace(end, exit_code=1),))])
    assert warning.has_effect([replace(of, ranks=(replace(end, exit_code=1, ended_s=AT_S + 5.0),))])
    assert not warning.has_effect([replace(of, ranks=(replace(end, ended_s=AT_S - 5.0),))])
    assert warning.has_effect([node(rank0=("SIGUSR1", AT_S - 0.1))])


# The report of the moment before


def test_the_report_before_a_moment_is_the_newest_that_was_made_until_then() -> None:
    history = ReportHistory()
    assert history.before(AT_S, AT_S) is None
    for at_s, one in ((1.0, HEALTHY), (2.0, WAITING), (3.0, FAULT)):
        history.add(one, at_s)
    assert history.before(1.0, 1.0) is None
    assert history.before(2.5, 2.5) is WAITING
    assert history.before(AT_S, AT_S) is FAULT


def test_a_wait_that_was_explained_just_before_the_signal_is_kept() -> None:
    """Seen: ranks were killed together with the agent, 0.2 s after the report said for whom all waited."""
    history = ReportHistory()
    history.add(HEALTHY, AT_S - 8.0)
    history.add(WAITING, AT_S - 0.2)
    assert history.before(AT_S - 0.8, AT_S) is WAITING
    history.add(FAULT, AT_S - 0.1)  # may be what the shutdown did
    assert history.before(AT_S - 0.8, AT_S) is WAITING
    history.add(WAITING, AT_S + 0.1)
    assert history.before(AT_S - 0.3, AT_S - 0.25) is HEALTHY


def test_a_fault_that_stood_before_the_shutdown_is_not_replaced_by_a_wait() -> None:
    history = ReportHistory()
    history.add(FAULT, AT_S - 8.0)
    history.add(WAITING, AT_S - 0.2)
    assert history.before(AT_S - 0.8, AT_S) is FAULT


def test_the_last_sample_counts_unless_it_shows_only_the_shutdown() -> None:
    assert better_of(WAITING, HEALTHY) is WAITING
    assert better_of(WAITING, FAULT).verdict == FAULT.verdict
    assert better_of(HEALTHY, replace(HEALTHY, status=Status.UNKNOWN)).status is Status.UNKNOWN


def test_history_is_short_and_keeps_what_stood_at_its_beginning() -> None:
    history = ReportHistory()
    history.add(WAITING, 0.0)
    for second in range(100, 200):
        history.add(HEALTHY, float(second))
    assert len(history._reports) < 4 * SAME_SHUTDOWN_S
    assert history.before(199.0 - SAME_SHUTDOWN_S, 199.0) is HEALTHY


def test_a_proven_fault_stays_one_and_a_wait_becomes_the_best_explanation() -> None:
    stayed = interrupted(FAULT, CTRL_C)
    assert (stayed.status, stayed.verdict, stayed.findings) == (Status.FAULT, FAULT.verdict, FAULT.findings)
    explained = interrupted(WAITING, CTRL_C)
    assert (explained.status, explained.verdict) == (Status.INTERRUPTED, WAITING.verdict)
    nothing = interrupted(HEALTHY, CTRL_C)
    assert (nothing.status, nothing.verdict) == (Status.INTERRUPTED, None)
    assert (nothing.not_checked[0].node, nothing.not_checked[0].why) == (1, "interrupted by SIGINT")


# What a node shows


def test_after_a_signal_only_the_report_of_the_moment_before_counts() -> None:
    shown: list[Report] = []
    keeper = NodeReport(shown.append)
    keeper.publish(WAITING)
    keeper.hold()
    keeper.publish(FAULT)  # what the end itself looks like
    keeper.amend(FAULT)
    assert keeper.last is WAITING
    final = interrupted(WAITING, CTRL_C)
    keeper.publish(final, is_final=True)
    keeper.publish(HEALTHY)
    assert keeper.last is final
    over = closed(final, STOPPED)
    keeper.publish(over, is_final=True)
    assert keeper.last is over
    assert shown == [WAITING, final, over]


def test_newer_numbers_are_kept_and_not_shown_again() -> None:
    shown: list[Report] = []
    keeper = NodeReport(shown.append)
    keeper.publish(WAITING)
    newer = replace(WAITING, duration_s=9.0)
    keeper.amend(newer)
    assert keeper.last is newer
    assert shown == [WAITING]


# The last report


def test_how_the_job_ended_stands_in_its_last_report() -> None:
    over = closed(HEALTHY, GOOD, notes=(Phrase("a note"),))
    assert (over.status, over.job, over.notes) == (Status.HEALTHY, GOOD, ("a note",))
    assert closed(over, FAILED) is over


def test_a_failed_job_is_never_healthy() -> None:
    failed = closed(HEALTHY, FAILED)
    assert failed.status is Status.UNKNOWN
    assert "exit code 1" in failed.not_checked[0].why
    assert closed(HEALTHY, STOPPED).status is Status.INTERRUPTED
    assert closed(FAULT, FAILED).status is Status.FAULT
    assert closed(interrupted(WAITING, CTRL_C), STOPPED).status is Status.INTERRUPTED


def test_a_job_that_ended_before_anything_was_known_is_not_waiting_any_more() -> None:
    assert closed(report(Status.WAITING), GOOD).status is Status.UNKNOWN


def test_a_rank_whose_end_is_noted_later_than_it_was_seen_tells_when_the_shutdown_began() -> None:
    """Its parent reaps it after a sample saw a zombie, and after our own signal: the judge may have spoken between."""
    noted = node(rank0=("SIGHUP", AT_S + 0.2))
    assert CTRL_C.began_s([noted]) == AT_S
    assert CTRL_C.began_s([noted], {0: AT_S - 0.1, 1: AT_S - 0.5}) == AT_S - 0.1
    assert CTRL_C.began_s([node(rank0=("SIGKILL", AT_S + 0.2))], {0: AT_S - 0.1}) == AT_S
    assert CTRL_C.began_s([noted], {0: AT_S - SAME_SHUTDOWN_S - 1.0}) == AT_S


def test_a_signal_to_ranks_counts_from_the_moment_at_which_the_first_of_them_left_its_script() -> None:
    """Python makes SIGINT an exception: on a busy machine a process ends seconds after that, and the wait is over
    before.  Seen: the explanation was withdrawn in between, and lost."""
    table = NodeTable(AgentState(reports=NodeReport(lambda _report: None)), lambda: None)
    table.begin(0, {0: (0, 1)})
    both = (RankStatus(rank=0), RankStatus(rank=1, phase="ending"))
    table.take(0, messages.STATUS, to_builtins(NodeStatus(node_rank=0, time_s=AT_S, ranks=both)))
    ends = tuple(end_of(None, "SIGINT", rank=rank, time_s=AT_S + 5.0 + rank) for rank in (0, 1))
    table.take(0, messages.ENDED, to_builtins(messages.Ended(attempt=0, ends=ends)))
    found = Interruption.of_ranks(table.known_ends())
    assert found == Interruption(signal="SIGINT", node=0, time_s=AT_S + 5.0, ranks=(0, 1))
    assert found.began_s(table.known_ends(), table.leaving_s) == AT_S
    history = ReportHistory()
    history.add(WAITING, AT_S - 5.0)
    history.add(HEALTHY, AT_S + 2.0)
    assert history.before(found.began_s(table.known_ends(), table.leaving_s), found.time_s) is WAITING


def test_of_a_signal_of_which_nobody_knows_when_it_came_the_first_explanation_stands() -> None:
    history = ReportHistory()
    history.add(HEALTHY, AT_S - 5.0)
    late = replace(WAITING, duration_s=9.0)
    history.add(WAITING, AT_S + 1.0)
    history.add(late, AT_S + 2.0)
    assert history.before(AT_S, AT_S + 5.0, is_first=True) is WAITING
    assert history.before(AT_S, AT_S + 5.0) is late


def test_while_a_rank_is_in_its_handler_of_a_signal_nothing_is_judged_for_a_minute() -> None:
    table = NodeTable(AgentState(reports=NodeReport(lambda _report: None)), lambda: None)
    table.begin(0, {0: (0,)})

    def see(handling: str, time_s: float) -> None:
        rank = RankStatus(rank=0, process_state=ProcessState.RUNNING, handling=handling, handling_after_s=time_s - 0.5)
        table.take(0, messages.STATUS, to_builtins(NodeStatus(node_rank=0, time_s=time_s, ranks=(rank,))))

    see("", AT_S)
    assert not table.is_being_ended(AT_S)
    see("SIGTERM", AT_S + 1)
    assert table.leaving_s == {0: AT_S + 0.5}
    assert table.is_being_ended(AT_S + 2)
    assert not table.is_being_ended(AT_S + 2 + HANDLES_S)
    see("", AT_S + 3)
    assert not table.is_being_ended(AT_S + 3)
    assert table.leaving_s == {}


def test_ranks_that_ended_with_the_shutdown_had_not_ended_before_it() -> None:
    """Else the last sample, which shows their ends, would be judged."""
    both = {0: node(rank0=("SIGKILL", AT_S - 9.0), rank1=("SIGHUP", AT_S + 0.1))}
    assert _ended_ranks(both) == {0, 1}
    assert _ended_ranks(both, before_s=AT_S) == {0}
    ahead = {0: node(3600.0, rank0=("SIGKILL", AT_S - 9.0 + 3600.0))}
    assert _ended_ranks(ahead, before_s=AT_S) == {0}
    unnoted = replace(ahead[0], ranks=(replace(ahead[0].ranks[0], ended_s=None),))
    assert _ended_ranks({0: unnoted}, before_s=AT_S) == set()


def test_a_killed_agent_leaves_the_newest_verdict_whichever_was_written_last(tmp_path: Path) -> None:
    """Its log relay puts the draft in place: a fault stays one, what was healthy or waited is not how it ended."""
    path, draft = tmp_path / "report.json", tmp_path / LAST_REPORT
    for newest, status in ((HEALTHY, "unknown"), (WAITING, "unknown"), (FAULT, "fault")):
        path.write_bytes(encode(HEALTHY))  # the agent was killed before it wrote the newest one
        leave_for_relay(tmp_path, path, newest)
        put_report(os.fsencode(draft))
        found = decode(path.read_bytes())
        assert (found.status, found.verdict) == (status, newest.verdict)
        assert sorted(p.name for p in tmp_path.iterdir()) == [LAST_REPORT, "report.json"]


def test_ends_that_no_status_has_are_known_from_the_last_message() -> None:
    """Else ranks that the same signal ended would have ended by themselves."""
    table = NodeTable(AgentState(reports=NodeReport(lambda _report: None)), lambda: None)
    table.begin(0, {0: (0, 1)})
    ends = tuple(end_of(None, "SIGHUP", rank=rank, time_s=AT_S + 0.1) for rank in (0, 1))
    hang_up = replace(CTRL_C, signal="SIGHUP")
    for status in (None, NodeStatus(node_rank=0, time_s=AT_S, ranks=(RankStatus(rank=0), RankStatus(rank=1)))):
        if status is not None:
            table.take(0, messages.STATUS, to_builtins(status))
        table.take(0, messages.ENDED, to_builtins(messages.Ended(attempt=0, ends=ends)))
        assert hang_up.has_effect(table.known_ends())
        assert _ended_ranks(dict(enumerate(table.known_ends()))) == {0, 1}


def test_a_job_that_ended_well_shows_no_moment_of_its_way() -> None:
    """Seen: "waits in #196; imports or compiles" of ranks of a healthy job that was over."""
    waits = RunEvent(kind=Happening.WAITS, operation="", seq=196, group="default_pg")
    position = GroupPosition(group="default_pg", source="flight recorder", enqueued=196, completed=195, waits=waits)
    row = RankRow(
        rank=2,
        end=waits,
        ending="waits in ? #196",
        activity="import_or_compile x",
        activity_kind="import_or_compile",
        site="x",
        positions=(position, GroupPosition(group="tp (inner)", source="ras", enqueued=7)),
        groups={"default_pg (flight recorder)": "196 enqueued, waits in ? #196", "tp (inner) (ras)": "7 enqueued"},
    )
    summary = RunSummary(
        ranks=(row,),
        stacks=(StackGroup(ranks=(2,), frames=("x",)),),
        timeline=(TimelineEvent(time_s=1.0, role="operation", text="", event=waits),),
    )
    before = replace(report(Status.HEALTHY), summary=summary)
    after = closed(before, GOOD).summary
    assert after is not None
    assert (after.stacks, after.timeline) == ((), ())
    [shown] = after.ranks
    assert shown.end == RunEvent(kind=Happening.ENDED_WELL, exit_code=0)
    assert (shown.ending, shown.activity, shown.activity_kind, shown.site) == ("", "", "", "")
    assert shown.groups == {"tp (inner) (ras)": "7 enqueued"}
    assert [p.waits for p in shown.positions] == [None, None]
    assert closed(before, FAILED).summary == summary


def test_a_signal_before_any_rank_runs_gives_the_exit_code_of_one_that_comes_later() -> None:
    nothing: Any = None
    job = NodeJob(
        nothing,
        nothing,
        report_dir=Path(),
        report_series=ReportSeries(command="run"),
        show=nothing,
        say=nothing,
        on_start=nothing,
        narrator=nothing,
        report_path=Path,
    )
    end = job.interrupted("SIGHUP")
    assert end.job == JobOutcome(exit_code=129, outcome=EndCause.STOPPED, attempts=0)
    assert (end.report.job, end.report.status) == (end.job, Status.INTERRUPTED)
