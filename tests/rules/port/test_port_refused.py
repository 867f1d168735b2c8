from msgspec.structs import replace

from allready.model import Confidence, FactMissing, PortHolder
from tests.fleets import check, fleet, healthy_roll
from tests.rules.port.fleets import contact, worker_alone


def test_says_that_the_machine_answers_and_nobody_listens() -> None:
    [hit] = check("PRT001", worker_alone("refused", detail="Connection refused (ECONNREFUSED)")).hits
    assert (hit.culprits.nodes, hit.confidence) == ((0,), Confidence.LIKELY)
    assert (hit.values["address"], hit.values["port"], hit.values["nearby"]) == ("10.0.0.1", 29500, None)


def test_shows_what_does_listen_nearby() -> None:
    [hit] = check("PRT001", worker_alone("refused", nearby=((29501, "allready"), (29510, "http")))).hits
    assert hit.values["nearby"] == "29501 allready, 29510 http"


def test_shows_the_local_holder_when_this_machine_refused() -> None:
    local = {
        "master_contact": contact(
            "refused", master_addr="localhost", address="127.0.0.1", local_holder=PortHolder(pid=9, command="nginx")
        )
    }
    [hit] = check("PRT001", worker_alone("refused", facts=local)).hits
    assert hit.values["nearby"] == "pid 9 nginx"


def test_nothing_nearby_means_that_node_0_is_absent() -> None:
    alone = worker_alone("refused", nearby=((22, "ssh"),))
    assert check("PRT001", alone).state == "clear"
    assert check("JOB011", alone).state == "hit"


def test_names_the_node_with_another_port_than_node_0_opened() -> None:
    wrong = fleet(3, roll=None, master_contact={2: contact("refused", master_port=29501)})
    [hit] = check("PRT001", wrong).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((2,), ("MASTER_PORT",))
    assert (hit.confidence, hit.values["nearby"]) == (Confidence.CERTAIN, "29500 allready")


def test_names_the_path_when_other_nodes_got_through_on_this_port() -> None:
    roll = healthy_roll(3)
    roll = replace(roll, claims=tuple(c for c in roll.claims if c.node_rank != 2))
    [hit] = check("PRT001", fleet(3, roll=roll, master_contact={2: contact("refused", nearby=())})).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((2, 0),))


def test_a_node_that_refuses_itself_is_another_rules_matter() -> None:
    assert check("PRT001", worker_alone("refused", address="10.0.0.2")).state == "clear"
    misnamed = worker_alone("refused", master_addr="gpu0", addresses=("127.0.1.1",), address="127.0.1.1")
    assert check("PRT001", misnamed).state == "clear"


def test_is_clear_when_all_got_through() -> None:
    assert check("PRT001", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("PRT001", fleet(2, master_contact={1: FactMissing("interrupted")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "interrupted"})
