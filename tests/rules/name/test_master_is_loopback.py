from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import Confidence, FactMissing, NameFacts, Severity
from allready.model.fill import fill
from tests.cases import cases
from tests.fleets import check, commands, fleet
from tests.rules.port.fleets import contact, node_0_alone, worker_alone


def names(*addresses: str, master: str = "gpu0") -> NameFacts:
    return NameFacts(own_name="gpu1", own_addresses=("10.0.0.2",), master_name=master, master_addresses=addresses)


@cases("address", ["127.0.1.1", "127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_names_the_node_where_the_name_is_loopback(address: str) -> None:
    alone = worker_alone("loopback", addresses=(address,), address=address, facts={"names": names(address)})
    [hit] = check("NAM002", alone).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((1,), ())
    assert hit.confidence is Confidence.CERTAIN


def test_names_the_minority_of_a_whole_fleet() -> None:
    mixed = fleet(4, names={2: names("127.0.1.1")}, master_contact={2: contact("loopback", addresses=("127.0.1.1",))})
    assert [h.culprits.nodes for h in check("NAM002", mixed).hits] == [(2,)]


def test_localhost_asked_for_literally_is_the_variables_fault() -> None:
    literal = names("127.0.0.1", master="localhost")
    refused = contact("refused", addresses=("127.0.0.1",), address="127.0.0.1", master_addr="localhost")
    [hit] = check("NAM002", worker_alone("refused", facts={"names": literal, "master_contact": refused})).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((1,), ("MASTER_ADDR",))
    assert hit.confidence is Confidence.LIKELY


def test_node_0_with_localhost_and_nobody_else_there_is_only_warned() -> None:
    alone = node_0_alone(2, facts={"names": replace(names("127.0.0.1", master="127.0.0.1"), own_name="gpu0")})
    [hit] = check("NAM002", alone).hits
    assert (hit.severity, hit.confidence) == (Severity.WARNING, Confidence.POSSIBLE)


def test_only_a_name_has_a_line_to_correct() -> None:
    def said(master: str) -> tuple[str, list[str]]:
        alone = worker_alone(
            "loopback",
            addresses=("127.0.0.1",),
            address="127.0.0.1",
            facts={"names": names("127.0.0.1", master=master)},
        )
        [hit] = check("NAM002", alone).hits
        return fill(load()["NAM002"].message, hit.values), commands("NAM002", hit)

    assert said("gpu0")[1] == ["hostname -I", "grep -n -w gpu0 /etc/hosts"]
    message, told = said("127.0.0.1")
    assert told == ["hostname -I"]
    assert message.startswith("MASTER_ADDR 127.0.0.1 on node 1")


def test_node_0_may_see_its_own_name_as_loopback() -> None:
    assert check("NAM002", fleet(4, names={0: names("127.0.1.1")})).state == "clear"
    assert check("NAM002", node_0_alone(4, facts={"names": names("127.0.1.1")})).state == "clear"


def test_all_nodes_on_one_machine_may_meet_at_loopback() -> None:
    local = names("127.0.0.1", master="127.0.0.1")
    met = contact("joined", addresses=("127.0.0.1",), address="127.0.0.1")
    one_machine = fleet(3, names=dict.fromkeys(range(3), local), master_contact={1: met, 2: met})
    assert check("NAM002", one_machine).state == "clear"


def test_an_address_beside_loopback_is_enough() -> None:
    both = worker_alone("refused", facts={"names": names("127.0.1.1", "10.0.0.1")})
    assert check("NAM002", both).state == "clear"


def test_is_clear_on_one_node() -> None:
    assert check("NAM002", fleet(1, names={0: names("127.0.0.1", master="localhost")})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NAM002", fleet(2, names={1: FactMissing("not sent")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "not sent"})
