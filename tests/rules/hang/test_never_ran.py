from allready.judging.loading import load
from allready.model import Severity
from allready.model.fill import fill, fill_steps, in_english, steps_of
from allready.text.ui import entries
from tests.rules.runs import ask, event


def timed_out(numel: str = "467019003", timeout_ms: str = "600000", ran_ms: str = "600053") -> object:
    values = {"op": "ALLREDUCE", "numel_in": numel, "timeout_ms": timeout_ms, "ran_ms": ran_ms, "seq": "56731"}
    return event("torch.watchdog_timeout", 6, values=values, time_s=1_000_000.0)


def test_two_gigabytes_need_no_600_seconds() -> None:
    [hit] = ask("HNG007", events=(timed_out(),)).hits
    assert hit.values["num_elements"] == "467,019,003"
    assert hit.values["needed"] == "3.74 s"
    assert "default" in in_english(hit.values["default"])
    assert hit.fault_time == "1970-01-12T13:36:39.947"
    assert load()["HNG007"].severity is Severity.INFO


def test_a_time_out_that_somebody_set_is_no_default() -> None:
    [hit] = ask("HNG007", events=(timed_out(timeout_ms="12000", ran_ms="12040", numel="4"),)).hits
    assert in_english(hit.values["default"]) == ""


def test_a_time_out_that_really_is_short_is_not_excused() -> None:
    assert ask("HNG007", events=(timed_out(timeout_ms="1000", ran_ms="1000"),)).state == "clear"


def test_is_told_once_for_all_ranks() -> None:
    assert len(ask("HNG007", events=(timed_out(), timed_out())).hits) == 1


def test_lines_without_numbers_are_passed_over() -> None:
    assert ask("HNG007", events=(timed_out(numel="?"),)).state == "clear"
    assert ask("HNG007", events=(timed_out(numel="9" * 40),)).state == "clear"


def test_what_is_not_known_of_the_moment_is_not_said() -> None:
    rule, chinese = load()["HNG007"], entries("zh", "hang")["HNG007"]
    [hit] = ask("HNG007", events=(timed_out(ran_ms="?"),)).hits
    assert "was stalled, not slow: most often" in fill(rule.message, hit.values)
    assert fill_steps(rule.steps, hit.values)[0].explanation.startswith("look for a rank that did not enter; if all")
    assert "操作停滞，并不是慢：" in fill(chinese["message"], hit.values)
    assert fill_steps(steps_of(chinese), hit.values)[0].explanation.startswith("查找没有进入的 rank；")
    [hit] = ask("HNG007", events=(timed_out(),)).hits
    assert "was stalled from 1970-01-12T13:36:39.947 on, not slow: most often" in fill(rule.message, hit.values)
    assert "操作从 1970-01-12T13:36:39.947 起停滞，并不是慢：" in fill(chinese["message"], hit.values)
