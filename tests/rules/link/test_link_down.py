from msgspec.structs import replace

from allready.model.fill import in_english
from tests.fleets import check

from .wires import DEAD, NOW, ask, job, link, status

BEFORE = {2: (status(2, time_s=NOW - 5), status(2, time_s=NOW - 3))}


def test_names_the_node_whose_link_is_gone_and_the_interface() -> None:
    [hit] = ask("LNK002", rows={(1, 2): DEAD, (2, 1): DEAD}, links={2: link(carrier=False)}, history=BEFORE).hits
    assert (hit.culprits.nodes, in_english(hit.values["interfaces"])) == ((2,), "eth0 of node 2")


def test_of_two_nodes_it_is_the_one_without_a_link() -> None:
    before = {1: (status(1, time_s=NOW - 3),)}
    [hit] = ask("LNK002", 2, rows={(0, 1): DEAD}, links={1: link(carrier=False)}, history=before).hits
    assert hit.culprits.nodes == (1,)


def test_an_interface_that_never_had_a_link_is_not_the_cause() -> None:
    before = {2: (status(2, time_s=NOW - 3),)}
    rows = {(1, 2): DEAD, (2, 1): DEAD}
    assert ask("LNK002", rows=rows, links={2: link(carrier=False, name="docker0")}, history=before).state == "clear"


def test_a_lost_link_that_stops_no_data_is_not_told() -> None:
    assert ask("LNK002", links={2: link(carrier=False)}, history=BEFORE).state == "clear"


def test_a_lost_link_elsewhere_does_not_explain_this_path() -> None:
    rows = {(0, 1): DEAD, (1, 0): DEAD}
    assert ask("LNK002", rows=rows, links={2: link(carrier=False)}, history=BEFORE).state == "clear"


def test_the_newest_look_at_interfaces_counts_until_the_next_one() -> None:
    """Every few words of a node tell of its interfaces, the others of none."""
    gone = replace(status(2, time_s=NOW - 1), links=(link(carrier=False),))
    rows = {(1, 2): DEAD, (2, 1): DEAD}
    fleet = job(rows=rows, history={2: (*BEFORE[2], gone)})
    live = fleet.live
    assert live is not None
    live = replace(live, statuses={**live.statuses, 2: replace(live.statuses[2], links=())})
    [hit] = check("LNK002", replace(fleet, live=live)).hits
    assert in_english(hit.values["interfaces"]) == "eth0 of node 2"
