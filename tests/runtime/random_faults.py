"""Jobs with random faults, and what must hold for each of them whatever happened."""

import random
from pathlib import Path
from typing import Any

from tests.runtime.job import Job

TIMEOUT_S = 0.6
ANSWER_S = 1.0
STEPS = 60
SIZE = 4
AGREED = {"CollectiveFailed", "HubLost", "RankExcluded", "RecoveryRefused"}


def faults_of(seed: int, num_soft: int) -> list[dict[str, Any]]:
    """Exceptions and ranks that come around the deadline, then in most jobs a rank that dies or is stopped."""
    chance = random.Random(seed)
    steps = chance.sample(range(2, STEPS - 12), num_soft)
    found = []
    for step in steps:
        kind = chance.choice(["raise", "sleep", "sleep"])
        fault = {"rank": chance.randrange(SIZE), "kind": kind, "step": step}
        found.append({**fault, "s": round(TIMEOUT_S + chance.uniform(-0.15, 0.3), 3)})
    hard = chance.choice(["kill", "stop", "stop", "crash", None])
    if hard is not None:
        found.append({"rank": chance.randrange(SIZE), "kind": hard, "step": STEPS - 8})
    return found


def run(
    folder: Path, seed: int, num_soft: int, *, device: str = "cpu", mesh: bool = False, in_flight: bool = False
) -> tuple[int, list[str]]:
    """One job: how many faults struck, and all that was wrong."""
    faults = faults_of(seed, num_soft)
    hard = {f["rank"]: f["kind"] for f in faults if f["kind"] in {"kill", "stop", "crash"}}
    plan: dict[str, Any] = {"steps": STEPS, "timeout_s": TIMEOUT_S, "answer_s": ANSWER_S}
    plan |= {"device": device, "mesh": mesh, "in_flight": in_flight}
    with Job(folder, SIZE, faults=faults, confirm=bool(seed % 2), **plan) as job:
        others = [r for r in range(SIZE) if r not in hard]
        problems = []
        try:
            job.wait(others)
            for rank in [r for r, kind in hard.items() if kind == "stop"]:
                job.wake(rank)
                job.wait([rank], 60.0)
        except AssertionError as error:
            problems.append(f"a rank did not end: {error}")
        problems += _problems(job, others)
        struck = sum(e["event"] == "fault" for r in range(SIZE) for e in job.events(r))
    return struck, problems


def _problems(job: Job, others: list[int]) -> list[str]:
    found = []
    by_epoch: dict[int, dict[int, dict[str, Any]]] = {}
    for rank in range(SIZE):
        events = job.events(rank)
        found += [f"rank {rank}: a wrong sum: {e}" for e in events if e["event"] == "wrong"]
        for event in events:
            if event["event"] == "failed" and event["blocked_s"] > TIMEOUT_S + 2.0 and event["error"] in AGREED:
                found.append(f"rank {rank}: blocked for {event['blocked_s']:.2f} s: {event}")
            if event["event"] == "recovered":
                by_epoch.setdefault(event["epoch"], {})[rank] = event
        if rank in others and events[-1]["event"] != "done":
            found.append(f"rank {rank}: the last event is {events[-1]} {job.errors(rank)[-300:]}")
    for epoch, of_ranks in by_epoch.items():
        said = {repr({k: v for k, v in e.items() if k not in {"at_s", "rank"}}) for e in of_ranks.values()}
        if len(said) > 1:
            found.append(f"epoch {epoch}: different outcomes: {said}")
        members = next(iter(of_ranks.values()))["members"]
        if not set(members) >= set(of_ranks):
            found.append(f"epoch {epoch}: a rank went on that is no member: {sorted(of_ranks)} {members}")
    return found
