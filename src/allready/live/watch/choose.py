"""Which job is meant."""

import time
from collections.abc import Mapping

from msgspec.structs import replace

from allready.errors import UsageError
from allready.live.watch.attach import jobs
from allready.live.watch.find import FoundJob, found_jobs, job_of_pids, unranked
from allready.live.watch.state import WatchedJob
from allready.proc.process import environ_of
from allready.report.safe import plain
from allready.text.usage import usage_text

MAX_LISTED = 20


def choose(wanted: str | None) -> tuple[WatchedJob, FoundJob | None]:
    """The job that is meant, and its ranks where no agent watches them.

    Args:
        wanted: a job id, the pid of an agent or of a rank, a run folder, or pids of processes with commas between;
            None: the only job here.

    Raises:
        UsageError: none is meant, or several are.
    """
    run = jobs()
    processes = found_jobs()
    below = {found.agent: found for found in processes if found.agent is not None}
    agents = {job.pid for job in run}
    # What an agent started is shown through the agent.  One that is not there to be asked is another user's, or has
    # only just begun: its ranks are shown as processes.
    others = [found for found in processes if found.agent not in agents]
    every = {**dict.fromkeys(run), **{found.job: found for found in others}}
    meant = _meant(every, wanted)
    if not meant and wanted is not None:
        pids = tuple(int(word) for word in wanted.split(",") if word.isdecimal() and len(word) < 10)
        named = job_of_pids(pids) if pids and len(pids) == wanted.count(",") + 1 else None
        if named is None:
            if not every:
                raise UsageError("no job {wanted!r} on this machine, and no other", wanted=wanted)
            raise UsageError("no job {wanted!r} on this machine; there are:{jobs}", wanted=wanted, jobs=_list(every))
        return named.job, named
    if not meant:
        raise _nothing()
    job = meant[0]
    if len({_identity(j) for j in meant}) > 1:
        raise UsageError("several jobs run here; choose one:{jobs}", jobs=_list({j: every[j] for j in meant}))
    if job.source == "allready" and not job.has_diagnosis and job.pid in below:
        found = below[job.pid]
        return replace(job, pids=found.job.pids), found
    return job, every[job]


def _meant(every: Mapping[WatchedJob, FoundJob | None], wanted: str | None) -> list[WatchedJob]:
    """Best first: of two agents of one job on one machine that of node 0 knows most."""
    if wanted is None:
        meant = list(every)
    else:
        place = environ_of(int(wanted)).get("ALLREADY_RUN_DIR", "") if wanted.isdecimal() and len(wanted) < 10 else ""
        by_pid = [
            job
            for job, found in every.items()
            if wanted in {str(job.pid), job.place}
            or (place and job.place == place)
            or (found is not None and any(wanted == str(pid) for pid, _ in found.members.values()))
        ]
        meant = by_pid[:1] or [job for job in every if job.job_id == wanted]
    return sorted(meant, key=lambda job: (job.node_rank is None, job.node_rank or 0))


def _identity(job: WatchedJob) -> tuple[str, str, str | int]:
    """Two agents of one job agree in it."""
    if job.source == "allready" and job.master and (job.num_nodes or 1) > 1:
        return job.source, job.job_id, job.master
    return job.source, job.job_id, job.pid


def _list(every: Mapping[WatchedJob, FoundJob | None]) -> str:
    lines = [f"\n  allready watch {job.pid}{_age(job)}{_what(job)}{_id(job)}" for job in list(every)[:MAX_LISTED]]
    if len(every) > MAX_LISTED:
        lines.append("\n  " + usage_text("and {count} more", count=len(every) - MAX_LISTED))
    return "".join(lines)


def _id(job: WatchedJob) -> str:
    """A job id from the command line: `none` is torchrun's default, and that of every job without one."""
    return "" if job.job_id == "none" else "  " + usage_text("job id {job_id}", job_id=plain(job.job_id, most=80))


def _age(job: WatchedJob) -> str:
    if job.started_s is None:
        return ""
    return "  " + usage_text("started {seconds} s ago", seconds=f"{max(0.0, time.time() - job.started_s):.0f}")


def _what(job: WatchedJob) -> str:
    if job.source == "allready":
        node = "" if job.node_rank is None or (job.num_nodes or 1) < 2 else f"  node {job.node_rank}"
        return f"{node}  {plain(' '.join(job.command[:1]), most=100)}"
    if len(job.pids) == 1:
        return "  " + usage_text("1 rank started without allready")
    return "  " + usage_text("{count} ranks started without allready", count=len(job.pids))


def _nothing() -> UsageError:
    pids = unranked()
    if not pids:
        return UsageError(
            "no distributed job of this user runs on this machine (searched for agents of allready run, and for "
            "processes whose environment has their rank, as RANK and WORLD_SIZE do)"
        )
    return UsageError(
        "no distributed job of this user runs on this machine (searched for agents of allready run, and for processes "
        "whose environment has their rank, as RANK and WORLD_SIZE do); these have loaded torch or JAX but their "
        "environment has no rank; to watch them as one job: allready watch {pids}",
        pids=",".join(map(str, pids)),
    )
