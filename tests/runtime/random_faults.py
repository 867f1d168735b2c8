"""Jobs with random faults, and what must hold for each of them whatever happened."""

import random
import signal
import threading
from pathlib import Path
from typing import Any

from allready.model.process import ProcessState
from allready.proc.process import read_stat
from tests.runtime.job import Job

TIMEOUT_S = 0.6
ANSWER_S = 1.0
STEPS = 60
SIZE = 4
LARGE_TIMEOUT_S = 3.0
LARGE_STEPS = 40
LARGE_MIB = (4, 16, 64)
HARD = {"RTM001", "RTM002", "RTM003", "RTM004"}
"""Codes of ranks that died, raised, stopped or left: another fault struck before the call that differs was compared."""
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


STOPS_LATER = ("stop_recovering", "stop_forming", "stop_forming_later")


def rejoining_faults_of(seed: int, num_soft: int) -> list[dict[str, Any]]:
    """The same, and ranks that are stopped and woken once the others went on, or killed and started again; some stop
    after the next failure is agreed, or while the group forms again."""
    chance = random.Random(f"rejoin {seed}")
    found = [f for f in faults_of(seed, num_soft) if f["kind"] not in {"kill", "stop", "crash"}]
    for step in range(4, STEPS - 8, 9):
        kind = chance.choice(["stop", "stop", "kill", *STOPS_LATER])
        found.append({"rank": chance.randrange(1 if kind == "kill" else 0, SIZE), "kind": kind, "step": step})
    return found


def large_faults_of(seed: int, num_faults: int) -> list[dict[str, Any]]:
    """Ranks that are stopped, killed, or late by around the deadline, at any moment of a large transfer or near it.

    One rank only raises: with the last that is neither dead nor left behind the job's state would be gone.
    """
    chance = random.Random(f"large {seed}")
    lasting, found = chance.randrange(SIZE), []
    for step in sorted(chance.sample(range(2, LARGE_STEPS - 2), num_faults)):
        rank = chance.randrange(SIZE)
        kind = chance.choice(["stop", "stop", "sleep", "raise", *(["kill"] * 3 if rank else [])])
        fault = {"rank": rank, "kind": "raise" if rank == lasting else kind, "step": step}
        fault["s"] = round(LARGE_TIMEOUT_S + chance.uniform(-0.15, 0.3), 3)
        if fault["kind"] in {"kill", "stop"}:
            fault["after_s"] = round(chance.uniform(0.0, 0.4), 3)
        found.append(fault)
    return found


WAYS = ("size", "dtype", "argument", "operation", "skip", "twice", "barrier")


def differing_faults_of(seed: int, num_soft: int) -> list[dict[str, Any]]:
    """The same, but most ranks that would raise or be late make another call than the others.

    Never two at neighbouring steps: whose call differs would depend on who is ahead.
    """
    chance = random.Random(f"differ {seed}")
    steps = range(2, STEPS - 12, 2)
    soft = [f for f in faults_of(seed, num_soft) if f["kind"] in {"raise", "sleep"}][: len(steps)]
    for fault, step in zip(soft, chance.sample(steps, len(soft)), strict=True):
        fault["step"] = step
        if chance.random() < 0.7:
            fault |= {"kind": "differ", "how": chance.choice(WAYS)}
    return [*soft, *(f for f in faults_of(seed, num_soft) if f["kind"] not in {"raise", "sleep"})]


class _Waker(threading.Thread):
    """Wakes ranks that make no progress, and starts those again that were killed, a little after the others went on."""

    def __init__(self, job: Job, seed: int) -> None:
        super().__init__(daemon=True)
        self._job, self._chance = job, random.Random(f"wake {seed}")
        self.has_ended = threading.Event()

    def run(self) -> None:
        while not self.has_ended.wait(0.05):
            for rank, process in enumerate(self._job.processes):
                code, stat = process.poll(), read_stat(process.pid)
                is_stopped = code is None and stat is not None and stat.state is ProcessState.STOPPED
                if code != -signal.SIGKILL and not is_stopped:
                    continue
                self.has_ended.wait(self._chance.choice([0.0, 0.3, 1.0, 2.5]))
                if is_stopped:
                    self._job.wake(rank)
                else:
                    self._job.restart(rank)


def run_rejoining(folder: Path, seed: int, num_soft: int, *, device: str = "cpu") -> tuple[int, list[str]]:
    """One job whose lost ranks come back: how many faults struck, and all that was wrong."""
    plan = {"steps": STEPS, "timeout_s": TIMEOUT_S, "device": device, "confirm": bool(seed % 2), "pace_s": 0.01}
    return _run_rejoining(folder, seed, rejoining_faults_of(seed, num_soft), plan)


def run_large(
    folder: Path,
    seed: int,
    num_faults: int,
    *,
    mesh: bool = False,
    in_flight: bool = False,
    plain: bool = False,
    mib: int | None = None,
) -> tuple[int, list[str]]:
    """One job with large transfers whose lost ranks come back: how many faults struck, and all that was wrong."""
    size = random.Random(f"size {seed}").choice(LARGE_MIB) if mib is None else mib
    plan = {"steps": LARGE_STEPS, "timeout_s": LARGE_TIMEOUT_S, "large": size << 18}
    plan |= {"mesh": mesh, "in_flight": in_flight, "plain": plain}
    return _run_rejoining(folder, seed, large_faults_of(seed, num_faults), plan)


def _run_rejoining(
    folder: Path, seed: int, faults: list[dict[str, Any]], plan: dict[str, Any]
) -> tuple[int, list[str]]:
    with Job(folder, SIZE, faults=faults, answer_s=ANSWER_S, rejoin=True, least=SIZE, **plan) as job:
        waker = _Waker(job, seed)
        waker.start()
        problems = []
        try:
            job.wait(list(range(SIZE)), 180.0)
        except AssertionError as error:
            problems.append(f"a rank did not end: {error}")
        finally:
            waker.has_ended.set()
            waker.join(20.0)
        problems += _problems(job, list(range(SIZE)), plan["timeout_s"], plain=bool(plan.get("plain")))
        struck = sum(e["event"] == "fault" for r in range(SIZE) for e in job.events(r))
        return struck, problems


def run(
    folder: Path,
    seed: int,
    num_soft: int,
    *,
    device: str = "cpu",
    mesh: bool = False,
    in_flight: bool = False,
    differ: bool = False,
    adopted: bool = False,
) -> tuple[int, list[str]]:
    """One job: how many faults struck, and all that was wrong."""
    faults = differing_faults_of(seed, num_soft) if differ else faults_of(seed, num_soft)
    hard = {f["rank"]: f["kind"] for f in faults if f["kind"] in {"kill", "stop", "crash"}}
    plan: dict[str, Any] = {"steps": STEPS, "timeout_s": TIMEOUT_S, "answer_s": ANSWER_S}
    plan |= {"device": device, "mesh": mesh, "in_flight": in_flight, "varied": differ, "adopted": adopted}
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
        problems += _problems(job, others, TIMEOUT_S)
        problems += [p for rank in others for p in _unseen(rank, job.events(rank), mesh=mesh)]
        struck = sum(e["event"] == "fault" for r in range(SIZE) for e in job.events(r))
    return struck, problems


def _unseen(rank: int, events: list[dict[str, Any]], *, mesh: bool) -> list[str]:
    """Calls of this rank that were not those of the others and did not fail as such, on the spot and by its fault.

    On a mesh a rank that leaves out a call in one group, or makes one too many, waits alone while the others are in
    other groups: who is missing there is late.
    """
    found = []
    for number, event in enumerate(events):
        if event["event"] != "fault" or event["kind"] != "differ":
            continue
        end = next((e for e in events[number + 1 :] if e["event"] in {"failed", "done", "ended"}), {"event": "nothing"})
        is_seen = end.get("code") in {"RTM007", "RTM008"} and set(end["culprits"]) <= {rank}
        is_seen = is_seen or (mesh and end.get("code") == "RTM005")
        if not is_seen and end.get("code") not in HARD and end.get("error") != "ValueError":
            found.append(f"rank {rank}: its call differed, and then {end}")
    return found


def _problems(job: Job, others: list[int], timeout_s: float, *, plain: bool = False) -> list[str]:
    found = []
    waits = AGREED | {"RuntimeError"} if plain else AGREED
    by_epoch: dict[int, dict[int, dict[str, Any]]] = {}
    for rank in range(SIZE):
        events = job.events(rank)
        found += [f"rank {rank}: a wrong sum: {e}" for e in events if e["event"] == "wrong"]
        stops_s = [e["at_s"] for e in events if e["event"] == "fault" and e["kind"] == "stop"]
        for event in events:
            is_over = event["event"] == "failed" and event["error"] in waits and event["blocked_s"] > timeout_s + 2.0
            if is_over and not any(0.0 < event["at_s"] - s < event["blocked_s"] for s in stops_s):
                found.append(f"rank {rank}: blocked for {event['blocked_s']:.2f} s: {event}")
            if event["event"] == "recovered":
                by_epoch.setdefault(event["epoch"], {})[rank] = event
        if rank in others and events[-1]["event"] != "done":
            found.append(f"rank {rank}: the last event is {events[-1]} {job.errors(rank)[-300:]}")
    for epoch, of_ranks in by_epoch.items():
        for names in (("members", "joined", "step"), ("first_void", "survivors", "cause", "code", "culprits")):
            said = {repr([e[k] for k in names]) for e in of_ranks.values() if names[-1] in e}
            if len(said) > 1:
                found.append(f"epoch {epoch}: different outcomes: {said}")
        members = next(iter(of_ranks.values()))["members"]
        if not set(members) >= set(of_ranks):
            found.append(f"epoch {epoch}: a rank went on that is no member: {sorted(of_ranks)} {members}")
    return found
