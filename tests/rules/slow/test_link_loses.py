from allready.model import Severity

from .moving import LOSSY, ask


def test_names_the_node_to_and_from_which_packets_get_lost() -> None:
    [hit] = ask("SLW008", flows=LOSSY).hits
    assert (hit.culprits.nodes, hit.severity) == ((2,), None)
    assert hit.values["num"] == 280
    assert hit.values["node"] == "2 (gpu2)"


def test_one_lossy_path_is_a_link() -> None:
    [hit] = ask("SLW008", flows={(2, 1): {"again": 150}}).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((2, 1),))


def test_a_few_losses_that_cost_little_are_a_warning() -> None:
    [hit] = ask("SLW008", flows={(2, 1): {"again": 85}, (3, 2): {"again": 90}}).hits
    assert hit.severity is Severity.WARNING


def test_a_burst_of_losses_at_a_change_accuses_nobody() -> None:
    burst = {"again": 900, "since": 0.8}
    assert ask("SLW008", flows=dict.fromkeys(LOSSY, burst)).state == "clear"
    assert ask("SLW008", flows=dict.fromkeys(LOSSY, burst | {"since": 0.0})).state == "hit"


def test_losses_on_all_paths_alike_accuse_nobody() -> None:
    assert ask("SLW008", flows={(n, (n - 1) % 4): {"again": 150} for n in range(4)}).state == "clear"


def test_what_the_kernel_repeats_without_need_is_healthy() -> None:
    assert ask("SLW008", flows={(2, 1): {"again": 8}, (3, 2): {"again": 9}}).state == "clear"


def test_is_clear_without_losses() -> None:
    assert ask("SLW008").state == "clear"


def test_where_all_paths_are_full_and_as_fast_as_each_other_what_one_repeats_is_no_fault() -> None:
    full = {(n, (n - 1) % 4): {"busy": 0.97, "rtt_s": 0.022} for n in range(4)}
    assert ask("SLW008", flows=full | {(2, 1): {**full[2, 1], "again": 900}}).state == "clear"


def test_where_all_paths_are_full_the_slower_one_that_loses_is_named() -> None:
    full = {(n, (n - 1) % 4): {"busy": 0.97, "rtt_s": 0.022} for n in range(4)}
    [hit] = ask("SLW008", flows=full | {(2, 1): {**full[2, 1], "again": 900, "sent_bytes": 10_000_000}}).hits
    assert hit.culprits.links == ((2, 1),)


def test_on_busy_nodes_few_losses_are_certain_only_where_the_other_end_says_what_came_twice() -> None:
    busy, lost = dict.fromkeys(range(4), 0.9), {pair: {"again": 280} for pair in LOSSY}
    [hit] = ask("SLW008", flows=lost, pressure=busy).hits
    assert hit.severity is Severity.WARNING
    [hit] = ask("SLW008", flows={pair: {**lost[pair], "needless": 10} for pair in LOSSY}, pressure=busy).hits
    assert (hit.severity, hit.values["num"]) == (None, 540)


def test_what_had_arrived_was_not_lost() -> None:
    """Acknowledgements that come late make a sender repeat what it need not."""
    late = {pair: {"again": 280, "needless": 275} for pair in LOSSY}
    assert ask("SLW008", flows=late).state == "clear"
