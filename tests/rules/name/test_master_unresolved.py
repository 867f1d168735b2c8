from msgspec.structs import replace

from allready.model import FactMissing, HostFacts, LaunchFacts, NameFacts
from tests.cases import cases
from tests.fleets import check, commands, fleet
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


@cases("how", [{"host": "kubernetes"}, {"launch": "kubernetes-indexed-job"}])
def test_in_a_pod_the_name_is_a_matter_of_the_service_and_not_of_the_hosts_file(how: dict[str, str]) -> None:
    facts = fleet(2)
    more: dict[str, dict[int, object]] = {"names": {1: UNKNOWN}, "master_contact": {1: contact("unresolved")}}
    if "host" in how:
        more["host"] = {1: replace(facts.per_node(HostFacts)[0][1], container=how["host"])}
    else:
        more["launch"] = {1: replace(facts.per_node(LaunchFacts)[0][1], scheduler=how["launch"])}
    [hit] = check("NAM001", fleet(2, **more)).hits
    told = commands("NAM001", hit)
    assert not any("/etc/hosts" in command for command in told)
    assert 'kubectl patch service SERVICE -p \'{"spec":{"publishNotReadyAddresses":true}}\'' in told
    [plain] = check("NAM001", fleet(2, names={1: UNKNOWN}, master_contact={1: contact("unresolved")})).hits
    assert commands("NAM001", plain) == ["echo 'ADDRESS head' | sudo tee -a /etc/hosts"]
