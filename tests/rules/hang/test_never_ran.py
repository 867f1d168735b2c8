from allready.model import Severity
from allready.rules.registry import load
from tests.rules.ruins import ask, event


def timed_out(numel: str = "467019003", timeout_ms: str = "600000", ran_ms: str = "600053") -> object:
    values = {"op": "ALLREDUCE", "numel_in": numel, "timeout_ms": timeout_ms, "ran_ms": ran_ms, "seq": "56731"}
    return event("torch.watchdog_timeout", 6, values=values, time_s=1_000_000.0)


def test_two_gigabytes_need_no_600_seconds() -> None:
    [hit] = ask("HNG007", events=(timed_out(),)).hits
    assert hit.values["num_elements"] == "467,019,003"
    assert float(str(hit.values["needed"])) < 10
    assert "default" in str(hit.values["default"])
    assert hit.fault_time == "1970-01-12T13:36:39.947"
    assert load()["HNG007"].severity is Severity.INFO


def test_a_time_out_that_somebody_set_is_no_default() -> None:
    [hit] = ask("HNG007", events=(timed_out(timeout_ms="12000", ran_ms="12040", numel="4"),)).hits
    assert hit.values["default"] == ""


def test_a_time_out_that_really_is_short_is_not_excused() -> None:
    assert ask("HNG007", events=(timed_out(timeout_ms="1000", ran_ms="1000"),)).state == "clear"


def test_is_told_once_for_all_ranks() -> None:
    assert len(ask("HNG007", events=(timed_out(), timed_out())).hits) == 1


def test_lines_without_numbers_are_passed_over() -> None:
    assert ask("HNG007", events=(timed_out(numel="?"),)).state == "clear"
    assert ask("HNG007", events=(timed_out(numel="9" * 40),)).state == "clear"
