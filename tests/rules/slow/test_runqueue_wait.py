from allready.model import Confidence

from .moving import ask, late


def test_names_the_rank_whose_main_thread_gets_no_cpu() -> None:
    [hit] = ask(
        "SLW013", (late(1),), ranks={1: {"queued_share": 0.7}, **{r: {"queued_share": 0.02} for r in (0, 2, 3)}}
    ).hits
    assert (hit.culprits.ranks, hit.confidence) == ((1,), Confidence.CERTAIN)
    assert (hit.values["queued"], hit.values["rest"]) == ("70%", "2%")


def test_on_a_machine_on_which_all_wait_for_cpus_nobody_is_accused() -> None:
    queued = {r: {"queued_share": 0.5} for r in range(4)}
    assert ask("SLW013", (late(1),), ranks=queued).state == "clear"
    assert ask("SLW006", (late(1),), ranks=queued).state == "clear"


def test_a_rank_that_is_not_late_may_wait_for_its_cpu() -> None:
    assert (
        ask("SLW013", (late(2),), ranks={r: {"queued_share": 0.7 if r == 1 else 0.01} for r in range(4)}).state
        == "clear"
    )


def test_where_the_kernel_does_not_count_it_nothing_is_claimed() -> None:
    assert ask("SLW013", (late(1),)).state == "clear"
    assert ask("SLW013", (late(1),), ranks={1: {"queued_share": 0.7}}).state == "clear"


def test_a_rank_without_a_cpu_answers_late_and_its_link_is_not_blamed() -> None:
    queued = {r: {"queued_share": 0.5 if r == 1 else 0.14} for r in range(4)}
    slow = {pair: {"busy": 0.9, "rtt_s": 0.08} for pair in ((1, 0), (2, 1))}
    assert ask("SLW009", (late(1),), ranks=queued, flows=slow).state == "clear"
    assert ask("SLW007", (late(1),), ranks=queued, flows=slow).state == "clear"
    assert ask("SLW013", (late(1),), ranks=queued, flows=slow).state == "hit"


def test_a_little_waiting_for_cpus_does_not_hide_a_slow_link() -> None:
    queued = {r: {"queued_share": 0.2 if r == 1 else 0.02} for r in range(4)}
    slow = {pair: {"busy": 0.9, "rtt_s": 0.08} for pair in ((1, 0), (2, 1))}
    assert ask("SLW007", ranks=queued, flows=slow).state == ask("SLW007", flows=slow).state
