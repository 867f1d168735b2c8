"""Who died, put together from tracebacks, tables and single lines of one log."""

from typing import TYPE_CHECKING

from allready.evidence.log import launchers
from allready.evidence.log.deaths import DeathDraft, merge
from allready.evidence.log.launchers import Statement
from allready.evidence.log.tracebacks import Failure, Traceback
from allready.model import Death

if TYPE_CHECKING:
    from allready.evidence.log.interpret import Log

MOST_DEATHS = 20_000
_ONLY_REPORTS = ("ChildFailedError", "SignalException", "CalledProcessError", "RendezvousGracefulExitError")
_STEP_ENDS = ("srun: Job step aborted", "srun: Terminating", "CANCELLED AT")


def find(log: "Log") -> list[Death]:
    """One death for each process that ended badly."""
    drafts: list[tuple[int, DeathDraft]] = []
    for block in log.blocks.tracebacks:
        draft = _of_traceback(log, block)
        if draft is not None:
            drafts.append((block.start, draft))
    for at, entry in log.blocks.entries:
        draft = _of_failure(log, at, entry.failure)
        draft.rank, draft.local_rank, draft.pid, draft.host = entry.rank, entry.local_rank, entry.pid, entry.host
        draft.time_s, draft.first, draft.is_table = entry.time_s, entry.is_first, True
        if entry.failure is None:
            draft.text = next((word for word in entry.words if not word.startswith("To enable")), "")
        if entry.exit_code is not None:
            draft.set_exit(entry.exit_code)
        drafts.append((at, draft))
    for at, said in log.blocks.error_files:
        draft = _of_failure(log, at, said.failure)
        who = log.whoever.of(log.lines[at])
        draft.rank, draft.local_rank, draft.pid = who.rank, who.local_rank, who.pid
        draft.text, draft.time_s, draft.is_own = draft.text or said.text, said.time_s, True
        drafts.append((at, draft))
    step_ended = False
    for at, line in enumerate(log.lines):
        if not line.is_known or line.prefix.kind == "nccl" or len(drafts) >= MOST_DEATHS:
            continue
        step_ended = step_ended or any(mark in line.text for mark in _STEP_ENDS)
        for said_of in launchers.read(log.lines, at):
            line.is_understood = True
            draft = _of_statement(log, at, said_of)
            draft.by_launcher = draft.by_launcher or (
                step_ended and said_of.task is not None and draft.signal in ("SIGKILL", "SIGTERM")
            )
            drafts.append((at, draft))
    drafts.sort(key=lambda pair: pair[0])
    return merge([draft for _, draft in drafts])


def _of_traceback(log: "Log", block: Traceback) -> DeathDraft | None:
    if not block.is_deadly:
        return None
    if block.is_launcher and any(f.name.endswith(_ONLY_REPORTS) for f in block.failures):
        return None
    draft = _of_failure(log, block.start, block.root)
    draft.is_own = True
    who = log.whoever.of(log.lines[block.start])
    if block.is_launcher:
        draft.rank = draft.local_rank = None
    elif block.spawned is not None:
        draft.local_rank, draft.rank, draft.pid = block.spawned, None, None
    else:
        draft.rank, draft.local_rank, draft.pid, draft.host = who.rank, who.local_rank, who.pid, who.host
        draft.task = who.task
    if block.is_launcher or block.spawned is not None:
        draft.origin = log.origin(log.lines[block.start], who._replace(rank=draft.rank, pid=None, host=None))
    return draft


def _of_failure(log: "Log", at: int, failure: Failure | None) -> DeathDraft:
    """A draft without the identity of the process."""
    line = log.lines[at]
    who = log.whoever.of(line)
    draft = DeathDraft(
        kind="exit", origin=log.origin(line, who), node=who.node, time_s=log.time_of(line), writer=_stream(log, at)
    )
    if failure is not None:
        draft.kind, draft.site = "exception", failure.site
        draft.text = failure.text if failure.last_error is None else f"{failure.text}; last error: {failure.last_error}"
        draft.is_collective_error = failure.is_collective_error
    return draft


def _stream(log: "Log", at: int) -> object:
    task, _, node = log.lines[at].prefix.writer
    return task, node


def _of_statement(log: "Log", at: int, said: Statement) -> DeathDraft:
    line = log.lines[at]
    who = log.whoever.of(line)
    draft = DeathDraft(
        kind=said.kind, origin=log.origin(line, who), rank=said.rank, local_rank=said.local_rank, pid=said.pid,
        host=said.host, node=said.node or who.node, signal=said.signal, text=said.text, site=said.site,
        time_s=log.time_of(line), by_launcher=said.by_launcher, first=said.first, is_own=said.is_own,
        is_collective_error=said.is_collective_error, writer=_stream(log, at),
    )  # fmt: skip
    if said.exit_code is not None:
        draft.set_exit(said.exit_code)
    if said.is_own:
        draft.rank = who.rank if who.rank is not None else draft.rank
        draft.local_rank, draft.pid, draft.host, draft.task = who.local_rank, who.pid, who.host, who.task
        return draft
    if said.task is not None:
        draft.task = said.task
        if log.whoever.tasks_are_ranks:
            draft.rank = said.task
    elif said.pid is not None and draft.rank is None and line.prefix.kind not in ("kernel", "syslog"):
        draft.rank = log.whoever.rank_of(None, said.pid)
    elif said.pid is None and said.local_rank is None and said.kind != "oom":
        draft.rank, draft.pid, draft.host = who.rank, who.pid, who.host
        draft.local_rank = who.local_rank
    if draft.host is None and line.prefix.kind in ("kernel", "syslog"):
        draft.host = line.prefix.host
    return draft
