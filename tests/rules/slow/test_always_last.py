from typing import Any

from msgspec.structs import replace

from allready.model import Lag, Live
from tests.fleets import check
from tests.rules.runs import ask, death, one_missing, run_fleet


def lag(late: dict[int, float], share: dict[int, float], **changes: Any) -> Lag:
    known: dict[str, Any] = {
        "group": "0",
        "source": "flight recorder",
        "num_operations": 60,
        "median_late_s": late,
        "last_share": share,
        "median_period_s": 0.5,
        "noise_s": 0.001,
    }
    return Lag(**(known | changes))


SLOW = lag({0: 0.0, 1: 0.001, 2: 0.4, 3: 0.0}, {2: 1.0})


def test_names_the_rank_that_is_always_last() -> None:
    [hit] = ask("SLW001", lags=(SLOW,)).hits
    assert (hit.culprits.ranks, hit.values["share"]) == ((2,), "100%")


def test_lateness_that_rotates_accuses_nobody() -> None:
    turns = lag(dict.fromkeys(range(4), 0.1), dict.fromkeys(range(4), 0.25))
    assert ask("SLW001", lags=(turns,)).state == "clear"


def test_lateness_within_the_noise_of_clocks_accuses_nobody() -> None:
    assert ask("SLW001", lags=(lag({0: 0.0, 1: 0.02}, {1: 1.0}, noise_s=0.01),)).state == "clear"


def test_a_lateness_that_costs_nothing_is_not_told() -> None:
    assert ask("SLW001", lags=(lag({0: 0.0, 1: 0.006}, {1: 1.0}),)).state == "clear"


def test_a_few_operations_prove_nothing() -> None:
    assert ask("SLW001", lags=(lag({0: 0.0, 1: 0.4}, {1: 1.0}, num_operations=5),)).state == "clear"


def test_a_run_that_hung_or_died_is_not_called_slow() -> None:
    assert ask("SLW001", lags=(SLOW,), progress=(one_missing(1),)).state == "clear"
    assert ask("SLW001", lags=(SLOW,), deaths=(death(1),)).state == "clear"


def test_a_running_job_is_judged_by_rules_that_know_more() -> None:
    fleet = replace(run_fleet(lags=(SLOW,)), live=Live(now_s=0.0))
    assert check("SLW001", fleet).state == "clear"
