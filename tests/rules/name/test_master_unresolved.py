from allready.model import FactMissing, NameFacts
from tests.fleets import check, fleet
from tests.rules.port.fleets import contact, worker_alone

UNKNOWN = NameFacts(
    own_name="gpu1",
    own_addresses=("10.0.0.2",),
    master_name="head",
    master_addresses=(),
    master_error="Name or service not known",
)


def test_names_the_node_and_the_resolvers_words() -> None:
    alone = worker_alone("unresolved", addresses=(), address=None, facts={"names": UNKNOWN})
    [hit] = check("NAM001", alone).hits
    assert hit.culprits.nodes == (1,)
    assert (hit.values["master"], hit.values["error"]) == ("head", "Name or service not known")


def test_uses_the_words_of_the_attempt_when_the_name_resolved_before() -> None:
    [hit] = check("NAM001", worker_alone("unresolved", detail="Temporary failure in name resolution")).hits
    assert hit.values["error"] == "Temporary failure in name resolution"


def test_names_only_those_that_cannot_resolve_it() -> None:
    mixed = fleet(4, names={2: UNKNOWN}, master_contact={2: contact("unresolved")})
    assert [h.culprits.nodes for h in check("NAM001", mixed).hits] == [(2,)]


def test_a_name_that_resolved_later_is_no_fault() -> None:
    assert check("NAM001", fleet(4, names={2: UNKNOWN})).state == "clear"


def test_is_clear_when_all_resolve() -> None:
    assert check("NAM001", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NAM001", fleet(2, names={1: FactMissing("getaddrinfo hangs")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "getaddrinfo hangs"})
