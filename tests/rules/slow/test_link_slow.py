from msgspec.structs import replace

from tests.fleets import check
from tests.rules.link.wires import DEAD, NOW

from .moving import OTHERS, SLOW, SLOW_JOB, SLOW_NOTICE, ask, moving, without_paces


def test_names_the_node_whose_link_is_slow_and_its_rate() -> None:
    [hit] = ask("SLW007", flows=SLOW_JOB).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((2,), ())
    assert (hit.values["rate"], hit.values["paths"]) == ("8.89", "2 -> 1, 3 -> 2")


def test_one_slow_path_is_the_node_whose_other_connections_are_delayed_too() -> None:
    flows = {(2, 1): SLOW, (2, 3): SLOW_NOTICE, (3, 2): OTHERS | {"rtt_s": 0.01}, (0, 3): OTHERS, (1, 0): OTHERS}
    [hit] = ask("SLW007", flows=flows).hits
    assert hit.culprits.nodes == (2,)


def test_one_slow_path_between_two_nodes_that_are_well_otherwise_is_a_link() -> None:
    flows = {(2, 1): SLOW, (1, 2): SLOW_NOTICE, (3, 2): OTHERS, (0, 3): OTHERS, (1, 0): OTHERS}
    [hit] = ask("SLW007", flows=flows).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((2, 1),))


def test_links_that_are_all_slow_alike_accuse_nobody() -> None:
    flows = {(n, (n - 1) % 4): SLOW for n in range(4)}
    assert ask("SLW007", flows=flows).state == "clear"


def test_of_two_nodes_that_are_slow_both_ways_nobody_is_accused() -> None:
    both = {(0, 1): SLOW, (1, 0): SLOW}
    assert ask("SLW007", num_nodes=2, flows=both).state == "clear"


def test_a_sender_that_is_slow_itself_does_not_make_its_link_slow() -> None:
    lazy = {"busy": 0.9, "sent_bytes": 6_000_000, "rtt_s": 0.0003}
    assert ask("SLW007", flows={**SLOW_JOB, (2, 1): lazy, (3, 2): lazy}).state == "clear"


def test_a_receiver_that_does_not_read_does_not_make_the_link_slow() -> None:
    full = SLOW | {"full": 0.85}
    assert ask("SLW007", flows={**SLOW_JOB, (2, 1): full, (3, 2): full}).state == "clear"


def test_a_path_whose_acknowledgements_are_put_off_now_and_then_is_not_slow() -> None:
    """Short messages to a receiver that has nothing to send: some round trips take 40 ms, most a tenth of one."""
    put_off = {"busy": 0.4, "sent_bytes": 1_500_000, "rtt_s": 0.0013}
    fast = {"busy": 0.07, "sent_bytes": 1_500_000, "rtt_s": 0.0002}
    assert ask("SLW007", num_nodes=2, flows={(0, 1): put_off | {"unsteady": 1.5}, (1, 0): fast}).state == "clear"
    [hit] = ask("SLW007", num_nodes=2, flows={(0, 1): put_off | {"unsteady": 0.4}, (1, 0): fast}).hits
    assert hit.culprits.links == ((0, 1),)


def test_a_slower_link_that_costs_nothing_is_not_told() -> None:
    seldom = SLOW | {"busy": 0.1, "sent_bytes": 700_000}
    few = {pair: OTHERS | {"sent_bytes": 700_000, "busy": 0.01} for pair in ((0, 3), (1, 0))}
    assert ask("SLW007", flows={(2, 1): seldom, (3, 2): seldom, **few}).state == "clear"


def test_paths_that_slowed_one_after_the_other_are_not_compared_across_the_change() -> None:
    """Two links are slowed, the second one a moment later: over the whole time the first one seems slower."""
    for first, second in ((0.2, 0.37), (0.4, 0.7), (0.55, 0.72), (0.6, 0.8), (0.45, 0.7)):
        slow = {**SLOW, "busy": 1.0}
        flows = {(0, 1): slow | {"since": first}, (1, 0): slow | {"since": second}}
        assert ask("SLW007", num_nodes=2, flows=flows).state == "clear", (first, second)


def test_a_slow_link_is_named_as_soon_as_both_parts_of_the_time_show_it() -> None:
    whole = {pair: flow | {"since": 0.0} for pair, flow in SLOW_JOB.items()}
    assert ask("SLW007", flows=whole).state == "hit"
    assert ask("SLW007", flows={pair: flow | {"since": 0.3} for pair, flow in SLOW_JOB.items()}).state == "hit"
    assert ask("SLW007", flows={pair: flow | {"since": 0.67} for pair, flow in SLOW_JOB.items()}).state == "clear"


def test_a_sample_that_only_one_node_has_sent_yet_is_not_compared() -> None:
    """Else its paths would be seen in a time of which the others tell nothing."""
    fleet = moving(flows={pair: flow | {"since": 0.67} for pair, flow in SLOW_JOB.items()})
    assert fleet.live is not None
    late = {n: replace(s, sockets=()) for n, s in fleet.live.statuses.items() if n != 2}
    history = {n: tuple(s for s in words if s.time_s < NOW) for n, words in fleet.live.history.items()}
    live = replace(fleet.live, statuses={**fleet.live.statuses, **late}, history=history)
    found = check("SLW007", replace(fleet, live=live))
    assert found.state == "clear"


def test_needs_no_recorder() -> None:
    assert check("SLW007", without_paces(moving(flows=SLOW_JOB))).state == "hit"


def test_a_path_that_is_dead_is_not_called_slow() -> None:
    fleet = moving(flows=SLOW_JOB)
    assert fleet.live is not None
    words = dict(fleet.live.statuses)
    words[2] = replace(words[2], sockets=tuple(replace(r, **DEAD) for r in words[2].sockets))
    assert check("SLW007", replace(fleet, live=replace(fleet.live, statuses=words, history={}))).state == "clear"


def test_is_clear_when_all_paths_are_alike_or_unknown() -> None:
    assert ask("SLW007").state == "clear"
    fleet = moving(flows=SLOW_JOB)
    assert fleet.live is not None
    assert check("SLW007", replace(fleet, live=replace(fleet.live, history={}))).state == "clear"
