"""Waits, budget and record of attempts; at the end with ranks that really crash."""

import json
import random
import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allready.judging.end_causes import end_of_attempt, explained
from allready.launch.attempts import RECORD, Attempts
from allready.launch.backoff import Backoff
from allready.launch.outcome import Outcome, outcome_of
from allready.model import EndCause, ProcessEnd
from allready.model.fill import in_english
from tests.launch.attempts_of_nodes import Nodes, again, plan_of, script
from tests.launch.processes import output

CRASH = outcome_of(end_of_attempt([ProcessEnd(rank=3, cause=EndCause.CRASHED, signal="SIGSEGV")]))
FAULT = outcome_of(end_of_attempt([ProcessEnd(rank=2, cause=EndCause.USER_EXCEPTION, exit_code=1)]))


def lines_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / RECORD).read_text().splitlines()]


@given(
    base=st.floats(0.01, 10),
    most=st.floats(0.01, 100),
    jitter=st.floats(0, 1),
    n=st.integers(0, 5000),
    seed=st.integers(),
)
def test_waits_follow_base_times_two_to_the_n_with_jitter_and_cap(
    base: float, most: float, jitter: float, n: int, seed: int
) -> None:
    whole = min(most, base * 2 ** min(n, 40))
    found = Backoff(base_s=base, most_s=most, jitter=jitter).wait_s(n, random.Random(seed))
    assert whole * (1 - jitter) - 0.001 <= found <= whole * (1 + jitter) + 0.001


def test_jitter_spreads_and_a_seed_repeats() -> None:
    backoff = Backoff(base_s=10.0, most_s=10.0, jitter=0.25)
    waits = [backoff.wait_s(0, random.Random(seed)) for seed in range(200)]
    assert min(waits) < 8.0
    assert max(waits) > 12.0
    assert waits == [backoff.wait_s(0, random.Random(seed)) for seed in range(200)]


def test_no_base_is_no_wait() -> None:
    assert Backoff(base_s=0.0).wait_s(9, random.Random(0)) == 0.0


def run(attempts: Attempts, outcome: Outcome, most: int = 50) -> list[float]:
    waits: list[float] = []
    for _ in range(most):
        decision = attempts.ended(outcome, started_s=100.0, ended_s=101.0, num_nodes=2, world_size=4)
        if not decision.again:
            return waits
        waits.append(decision.wait_s)
    return waits


def test_ten_crashes_in_a_row(tmp_path: Path) -> None:
    backoff = Backoff(base_s=1.0, most_s=60.0, jitter=0.25)
    attempts = Attempts(max_restarts=10, backoff=backoff, folder=tmp_path, seed=7)
    waits = run(attempts, CRASH)
    assert len(waits) == 10
    for n, wait in enumerate(waits):
        assert min(60.0, 2.0**n) * 0.75 <= wait <= min(60.0, 2.0**n) * 1.25
    lines = lines_of(tmp_path)
    assert [line["attempt"] for line in lines] == list(range(11))
    assert [line["wait_s"] for line in lines] == [*waits, None]
    assert lines[-1]["why_last"] == "budget"
    assert {line["exit_code"] for line in lines} == {139}
    assert {line["first_failed_rank"] for line in lines} == {3}
    assert sum(a.wait_s or 0.0 for a in attempts.record) == pytest.approx(sum(waits))


def test_an_exception_ends_it_at_once() -> None:
    attempts = Attempts(max_restarts=10, backoff=Backoff())
    assert attempts.ended(FAULT, started_s=0.0, ended_s=1.0).why == "not_worth"
    assert attempts.number == 0


def test_success_and_the_users_stop_end_it() -> None:
    attempts = Attempts(max_restarts=10, backoff=Backoff())
    ok = outcome_of(end_of_attempt([ProcessEnd(rank=0, cause=EndCause.SUCCESS, exit_code=0)]))
    assert attempts.ended(ok, started_s=0.0, ended_s=1.0).why == "success"
    assert (
        attempts.ended(outcome_of(end_of_attempt([], stopped_by="user")), started_s=0.0, ended_s=1.0).why == "stopped"
    )


def test_without_restarts_there_is_one_attempt() -> None:
    assert Attempts(max_restarts=0, backoff=Backoff()).ended(CRASH, started_s=0.0, ended_s=1.0).why == "budget"
    assert Attempts(max_restarts=-5, backoff=Backoff()).left == 0


def test_excluded_nodes_stand_in_the_record_from_then_on(tmp_path: Path) -> None:
    attempts = Attempts(max_restarts=3, backoff=Backoff(), folder=tmp_path)
    attempts.ended(CRASH, started_s=0.0, ended_s=1.0)
    attempts.exclude("gpu07", "lost twice")
    attempts.exclude("gpu07", "again")
    attempts.ended(CRASH, started_s=2.0, ended_s=3.0)
    assert [line["excluded_nodes"] for line in lines_of(tmp_path)] == [{}, {"gpu07": "lost twice"}]


def test_the_record_has_times_and_reasons(tmp_path: Path) -> None:
    run(Attempts(max_restarts=0, backoff=Backoff(), folder=tmp_path), CRASH)
    (line,) = lines_of(tmp_path)
    assert line["start"] == "1970-01-01T00:01:40.000+00:00"
    assert (line["duration_s"], line["outcome"], line["num_nodes"], line["world_size"]) == (1.0, "crashed", 2, 4)
    assert line["reason"] == "rank 3 ended with signal SIGSEGV"


def test_a_record_that_cannot_be_written_changes_nothing_else(tmp_path: Path) -> None:
    attempts = Attempts(max_restarts=2, backoff=Backoff(base_s=0.0), folder=tmp_path / "none")
    assert len(run(attempts, CRASH)) == 2
    assert "No such file" in attempts.problem


@pytest.mark.jobs
def test_ranks_that_really_crash_are_started_again_until_the_budget_ends(tmp_path: Path) -> None:
    backoff = Backoff(base_s=0.02, most_s=0.1, jitter=0.25)
    attempts = Attempts(max_restarts=4, backoff=backoff, folder=tmp_path, seed=1)
    command = script(tmp_path, "import os\nprint('attempt', flush=True)\nos.kill(os.getpid(), 11)")
    plan = plan_of(tmp_path, command, nproc=1)
    while True:
        with Nodes([plan], over_torch=False) as nodes:
            started_s = time.time()
            result = nodes.join()[0]
        tail = output(tmp_path)
        ranks = [explained(end, tail, by_us=rank in result.ended_by_us) for rank, end in result.ends.items()]
        outcome = outcome_of(end_of_attempt(ranks, problem=result.problem, problem_kind=result.problem_kind))
        decision = attempts.ended(outcome, started_s=started_s, ended_s=time.time())
        if not decision.again:
            break
        time.sleep(decision.wait_s)
        plan = again(plan)
    assert (decision.why, outcome.exit_code, outcome.end) == ("budget", 139, EndCause.CRASHED)
    assert output(tmp_path).count(b"attempt") == 5
    times = [(datetime.fromisoformat(a.start), datetime.fromisoformat(a.end)) for a in attempts.record]
    for n, attempt in enumerate(attempts.record[:-1]):
        assert (times[n + 1][0] - times[n][1]).total_seconds() >= (attempt.wait_s or 0.0) - 0.01


def test_the_record_masks_secrets_and_may_be_printed(tmp_path: Path) -> None:
    words = "RuntimeError: login failed HF_TOKEN=SECRET https://u:SECRET@h/ \u009b31m"
    said = outcome_of(end_of_attempt([ProcessEnd(rank=2, cause=EndCause.USER_EXCEPTION, exit_code=1, text=words)]))
    assert "SECRET" in in_english(said.reason.phrase), "else there is nothing to mask"
    attempts = Attempts(max_restarts=0, backoff=Backoff(), folder=tmp_path)
    attempts.ended(said, started_s=0.0, ended_s=1.0)
    text = (tmp_path / RECORD).read_text()
    assert "login failed" in text
    assert "SECRET" not in text
    assert "\u009b" not in text
