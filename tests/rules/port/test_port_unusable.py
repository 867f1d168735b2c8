from allready.model import FactMissing, MasterPortFacts
from tests.fleets import check, fleet


def test_says_why_node_0_cannot_listen() -> None:
    denied = MasterPortFacts(port=80, opened=False, error="Permission denied (EACCES)")
    [hit] = check("PRT009", fleet(2, master_port={0: denied})).hits
    assert hit.culprits.nodes == (0,)
    assert hit.values["error"] == "Permission denied (EACCES)"


def test_a_port_that_is_taken_is_another_rules_matter() -> None:
    taken = MasterPortFacts(port=29500, opened=False, error="Address already in use (EADDRINUSE)")
    assert check("PRT009", fleet(2, master_port={0: taken})).state == "clear"
    assert check("PRT004", fleet(2, master_port={0: taken})).state == "hit"


def test_is_clear_when_node_0_opened_the_port() -> None:
    assert check("PRT009", fleet(2)).state == "clear"


def test_says_when_it_could_not_check() -> None:
    outcome = check("PRT009", fleet(2, master_port={0: FactMissing("interrupted")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "interrupted"})
