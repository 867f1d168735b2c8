from msgspec.structs import replace

from allready.model import NodeStatus, Severity

from .wires import DEAD, NOW, ask, link, row, status


def carrier(*up: bool) -> tuple[NodeStatus, ...]:
    begin = NOW - 2.0 * len(up)
    return tuple(replace(status(2, time_s=begin + 2.0 * i), links=(link(carrier=ok),)) for i, ok in enumerate(up))


def test_one_gap_is_a_warning_with_the_node() -> None:
    [hit] = ask("LNK007", history={2: carrier(True, False, True)}).hits
    assert (hit.culprits.nodes, hit.values["num"], hit.severity) == ((2,), 1, None)


def test_gaps_that_come_again_are_a_fault() -> None:
    [hit] = ask("LNK007", history={2: carrier(True, False, True, False, True)}).hits
    assert (hit.values["num"], hit.severity) == (2, Severity.ERROR)


def test_a_path_that_was_dead_and_works_again_is_told_by_its_two_nodes() -> None:
    words = tuple(
        status(1, [row(1, 2, **(DEAD if dead else {}))], time_s=NOW - 8 + 2 * i)
        for i, dead in enumerate((False, True, False))
    )
    [hit] = ask("LNK007", history={1: words}).hits
    assert hit.culprits.links == ((1, 2),)


def test_a_connection_that_ended_did_not_come_back() -> None:
    words = (status(1, [row(1, 2)], time_s=NOW - 6), status(1, [row(1, 2, **DEAD)], time_s=NOW - 4))
    gone = status(1, [row(1, 0)], time_s=NOW - 2)
    fleet_rows = {(1, 2): {"remote": "192.0.2.1"}}
    assert ask("LNK007", rows=fleet_rows, history={1: (*words, gone)}).state == "clear"


def test_an_interface_that_stays_down_did_not_flap() -> None:
    assert ask("LNK007", history={2: carrier(True, False)}, links={2: link(carrier=False)}).state == "clear"


def test_while_it_is_broken_the_other_rules_speak() -> None:
    dead = {(1, 2): DEAD, (2, 1): DEAD}
    assert ask("LNK007", rows=dead, history={2: carrier(True, False, True)}).state == "clear"


def test_is_clear_without_a_gap() -> None:
    assert ask("LNK007", history={2: carrier(True, True, True)}).state == "clear"
