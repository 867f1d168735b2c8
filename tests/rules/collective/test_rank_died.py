import pytest

from allready.judging.engine import judge
from allready.model import Severity
from allready.model.fill import in_english
from tests.fleets import check, fleet
from tests.rules.collective.made_up import stage, state, stopped_at

ECHO = "RuntimeError: [/pytorch/gloo/pair.cc:144] Connection closed by peer [10.0.0.2]:41000"


def test_names_the_killed_rank_and_not_those_that_echo_it() -> None:
    failed = stage(
        "sweep",
        "failed",
        state(2, "killed", signal="SIGKILL"),
        state(0, "exited", exit_code=1, error=ECHO),
        state(1, "killed", signal="SIGABRT", error="ncclRemoteError: remote process exited"),
        state(3, error=ECHO),
    )
    [hit] = check("COL002", fleet(2, collectives=stopped_at(failed))).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((2,), (1,))
    assert in_english(hit.values["how"]) == "SIGKILL"
    assert [f.code for f in judge(fleet(2, collectives=stopped_at(failed)))[0]] == ["COL002"]


def test_a_long_error_is_cut() -> None:
    dead = state(2, "killed", signal="SIGKILL", error="x" * 5000)
    [hit] = check("COL002", fleet(2, collectives=stopped_at(stage("allocate", "failed", dead)))).hits
    assert in_english(hit.values["how"]) == "SIGKILL: " + "x" * 200
    assert hit.values["error"] == "x" * 400


def test_says_that_the_kernel_ran_out_of_memory() -> None:
    dead = state(2, "killed", signal="SIGKILL", error="out of memory: the kernel killed 1 process(es) in this cgroup")
    [hit] = check("COL002", fleet(2, collectives=stopped_at(stage("allocate", "failed", dead)))).hits
    assert "out of memory" in str(hit.values["how"])


def test_an_early_end_without_a_word_is_a_death_too() -> None:
    failed = stage("gloo_barrier", "failed", state(1, "exited", exit_code=0), entered=(0, 2, 3))
    [hit] = check("COL002", fleet(2, collectives=stopped_at(failed))).hits
    assert (hit.culprits.ranks, in_english(hit.values["how"])) == ((1,), "exit code 0")


def test_a_bus_error_leaves_the_verdict_to_a_full_dev_shm() -> None:
    failed = stage("nccl_small", "failed", state(1, "killed", signal="SIGBUS"))
    [hit] = check("COL002", fleet(2, collectives=stopped_at(failed))).hits
    assert hit.severity is Severity.ERROR


def test_a_rank_that_a_supervisor_ended_is_not_the_cause_while_there_is_a_better_one() -> None:
    failed = stage(
        "nccl_init",
        "failed",
        state(0, "killed", signal="SIGTERM"),
        state(1, "exited", exit_code=1, error="ValueError: x"),
    )
    assert check("COL002", fleet(2, collectives=stopped_at(failed))).state == "clear"
    [hit] = check("COL003", fleet(2, collectives=stopped_at(failed))).hits
    assert hit.culprits.ranks == (1,)


def test_a_rank_that_was_asked_to_end_is_named_when_nothing_else_explains_it() -> None:
    failed = stage("nccl_init", "failed", state(0, "killed", signal="SIGTERM"), state(1, error=ECHO))
    [hit] = check("COL002", fleet(2, collectives=stopped_at(failed))).hits
    assert hit.culprits.ranks == (0,)


def test_a_lost_node_takes_its_ranks_along() -> None:
    failed = stage("sweep", "failed", state(2, "unknown", error="its connection broke"), state(3, "unknown"))
    [hit] = check("COL002", fleet(2, collectives=stopped_at(failed))).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((2, 3), (1,))


@pytest.mark.parametrize("outcome", ["hung", "failed"])
def test_ranks_that_only_lost_their_peers_are_not_dead_by_themselves(outcome: str) -> None:
    bad = stage("nccl_small", outcome, *(state(r, "exited", exit_code=1, error=ECHO) for r in range(4)))
    assert check("COL002", fleet(2, collectives=stopped_at(bad))).state == "clear"


def test_is_clear_when_every_stage_ended_well() -> None:
    assert check("COL002", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    outcome = check("COL002", fleet(2, collectives=None, why_not={"collectives": "--stages facts"}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {None: "--stages facts"})
