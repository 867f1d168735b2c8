import pytest
from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import Caller, Confidence, FactMissing, FirewallFacts, Fleet, NetFacts
from allready.model.fill import fill_steps
from tests.cases import cases
from tests.fleets import check, fleet, healthy_node
from tests.rules.firewalls import drops_of
from tests.rules.port.fleets import contact, node_0_alone, worker_alone

DROPS_PORT = FirewallFacts(
    tool="nft",
    drops=drops_of("inet filter input: ct state invalid drop", "inet filter input: tcp dport 29500 drop"),
    dropped_ports=((29500, 29500),),
)


def calling(*, hears_us: bool | None, node: int = 2) -> Caller:
    return Caller(
        kind="datagram",
        address=f"10.0.0.{node + 1}",
        node_rank=node,
        name=f"gpu{node}",
        detail="silent",
        tcp="silent",
        hears_us=hears_us,
    )


def test_the_silent_node_names_its_way_to_node_0() -> None:
    [hit] = check("PRT002", worker_alone("silent", heard_by_datagram=False)).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((1, 0),))
    assert hit.confidence is Confidence.LIKELY
    assert hit.values["address"] == "10.0.0.1:29500"


def test_names_the_node_whose_own_filter_lets_nothing_out_to_the_master_port() -> None:
    out = FirewallFacts(
        tool="nft", drops=drops_of("inet t out: tcp dport 29500 drop"), out_dropped_ports=((29500, 29500),)
    )
    [hit] = check("PRT002", worker_alone("silent", heard_by_datagram=True, facts={"firewall": out})).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((1,), ((1, 0),))
    assert hit.values["command"] == "nft insert rule inet t out ip daddr 10.0.0.1 accept"


@pytest.mark.parametrize(
    ("tool", "rule", "command"),
    [
        ("nft", "inet t out: tcp sport 29500 drop", "nft insert rule inet t out tcp sport 29500 accept"),
        ("nft", "inet t out: tcp sport { 22, 29000-30000 } drop", "nft insert rule inet t out tcp sport 29500 accept"),
        ("iptables", "-A OUTPUT -p tcp -m tcp --sport 29500 -j DROP",
         "iptables -I OUTPUT -p tcp --sport 29500 -j ACCEPT"),
    ],
)  # fmt: skip
def test_names_node_0_whose_own_filter_drops_its_answers(tool: str, rule: str, command: str) -> None:
    out = {"firewall": FirewallFacts(tool=tool, drops=drops_of(rule))}
    for silent in (node_0_alone(3, facts=out), node_0_alone(3, callers=(calling(hears_us=True),), facts=out)):
        hit = check("PRT002", silent).hits[0]
        assert (hit.culprits.nodes, hit.culprits.links) == ((0,), ((0, 1), (0, 2)))
        assert (hit.values["on"], hit.values["command"]) == ("0 (gpu0)", command)
        assert rule in str(hit.values["filter"])


@cases(
    "rule",
    ["inet t out: tcp sport 22 drop", "inet t out: tcp sport != 29500 drop", "inet t out: udp sport 29500 drop",
     "inet t out: ip daddr 10.0.0.9 tcp sport 29500 drop", "inet t out: tcp sport 29500 limit rate 1/second drop"],
)  # fmt: skip
def test_a_rule_about_other_answers_explains_nothing(rule: str) -> None:
    out = {"firewall": FirewallFacts(tool="nft", drops=drops_of(rule))}
    assert check("PRT002", node_0_alone(3, facts=out)).state == "clear"


def test_is_certain_when_node_0_answers_datagrams() -> None:
    [hit] = check("PRT002", worker_alone("silent", heard_by_datagram=True)).hits
    assert hit.confidence is Confidence.CERTAIN


def test_a_refusal_is_not_called_silence_also_where_node_0_finds_the_rule() -> None:
    assert check("PRT002", worker_alone("refused", heard_by_datagram=True)).state == "clear"
    refused = replace(calling(hears_us=True), tcp="refused")
    rejecting = replace(DROPS_PORT, drops=drops_of("inet filter input: tcp dport 29500 reject"))
    only_it_is_out = node_0_alone(2, callers=(replace(refused, node_rank=1),), facts={"firewall": rejecting})
    assert check("PRT002", only_it_is_out).state == "clear"
    assert check("PRT010", only_it_is_out).hits[0].culprits.nodes == (0,)


def test_silence_beyond_a_router_may_be_a_machine_that_is_off() -> None:
    far = worker_alone("silent", heard_by_datagram=False, address="192.168.7.7", addresses=("192.168.7.7",))
    [hit] = check("PRT002", far).hits
    assert hit.confidence is Confidence.POSSIBLE


def test_node_0_names_the_path_of_a_node_that_hears_it() -> None:
    [hit] = check("PRT002", node_0_alone(4, present=(0, 1, 3), callers=(calling(hears_us=True),))).hits
    assert (hit.culprits.links, hit.confidence) == (((2, 0),), Confidence.CERTAIN)
    # Node 0's own rules were read and let the port in: then the filter is elsewhere, and no command for node 0 helps.
    first, second = fill_steps(load()["PRT002"].steps, hit.values)
    assert (first.where, first.command) == ("node 2", "nft list ruleset | grep -w 29500; iptables -S OUTPUT")
    assert second.command == "ping -c 3 10.0.0.1"


def test_gives_the_usual_command_when_node_0_s_rules_could_not_be_read() -> None:
    facts = {"firewall": FactMissing("permission denied")}
    [hit] = check("PRT002", node_0_alone(4, present=(0, 1, 3), callers=(calling(hears_us=True),), facts=facts)).hits
    assert hit.values["command"] == "iptables -I INPUT -p tcp -s 10.0.0.3 --dport 29500 -j ACCEPT"


def test_names_node_0_when_its_own_filter_drops_the_port() -> None:
    filtered = node_0_alone(4, present=(0, 1, 3), callers=(calling(hears_us=True),), facts={"firewall": DROPS_PORT})
    [hit] = check("PRT002", filtered).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((0,), ((2, 0),))
    assert "tcp dport 29500 drop" in str(hit.values["filter"])
    assert str(hit.values["command"]).startswith("nft insert rule inet filter input")


def test_names_node_0_by_its_filter_alone_when_nobody_comes() -> None:
    [hit] = check("PRT002", node_0_alone(3, facts={"firewall": DROPS_PORT})).hits
    assert (hit.culprits.nodes, hit.confidence) == ((0,), Confidence.LIKELY)


def test_a_filter_on_another_port_explains_nothing() -> None:
    other = replace(DROPS_PORT, drops=drops_of("inet filter input: tcp dport 22 drop"), dropped_ports=((22, 22),))
    assert check("PRT002", node_0_alone(3, facts={"firewall": other})).state == "clear"


def test_names_the_node_whose_own_filter_drops_what_it_sends() -> None:
    own = FirewallFacts(tool="nft", drops=drops_of("ip filter output: ip daddr { 10.0.0.1, 10.0.0.9 } drop"))
    [hit] = check("PRT002", worker_alone("silent", heard_by_datagram=False, facts={"firewall": own})).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((1,), ((1, 0),))
    assert hit.values["command"] == "nft insert rule ip filter output ip daddr 10.0.0.1 accept"


def test_a_node_that_does_not_hear_node_0_is_not_filtered_but_one_way() -> None:
    deaf = node_0_alone(4, present=(0, 1, 3), callers=(calling(hears_us=False),))
    assert check("PRT002", deaf).state == "clear"


def test_waits_until_a_caller_could_have_said_whether_it_hears_us() -> None:
    def fleet_with(*, finished: bool) -> Fleet:
        return node_0_alone(4, present=(0, 1, 3), callers=(calling(hears_us=None),), finished=finished)

    assert check("PRT002", fleet_with(finished=False)).state == "clear"
    [hit] = check("PRT002", fleet_with(finished=True)).hits
    assert hit.confidence is Confidence.LIKELY


def test_a_caller_that_got_in_later_is_forgotten() -> None:
    assert check("PRT002", node_0_alone(4, present=(0, 1, 2, 3), callers=(calling(hears_us=True),))).state == "clear"


def test_one_node_is_counted_once_when_both_sides_speak() -> None:
    both = fleet(4, master_contact={2: contact("silent", heard_by_datagram=True)})
    assert both.roll is not None
    roll = replace(
        both.roll, claims=tuple(c for c in both.roll.claims if c.node_rank != 2), callers=(calling(hears_us=True),)
    )
    [hit] = check("PRT002", replace(both, roll=roll)).hits
    assert hit.culprits.links == ((2, 0),)


def test_is_clear_when_all_got_through() -> None:
    assert check("PRT002", fleet(4)).state == "clear"


def test_is_not_checked_when_the_job_is_not_known() -> None:
    outcome = check("PRT002", worker_alone("silent", facts={"launch": FactMissing("no flags")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "no flags"})


FIREWALLD = (
    'firewall-cmd --add-rich-rule=\'rule family="ipv4" source address="10.0.0.3" '
    'port port="29500" protocol="tcp" accept\''
)


@cases(
    ("tool", "command"),
    [
        ("nft", "nft insert rule inet filter input ip saddr 10.0.0.3 tcp dport 29500 accept"),
        ("ufw", "ufw insert 1 allow proto tcp from 10.0.0.3 to any port 29500"),
        ("firewalld", FIREWALLD),
        ("iptables", "iptables -I INPUT -p tcp -s 10.0.0.3 --dport 29500 -j ACCEPT"),
    ],
)
def test_gives_the_command_of_the_firewall_that_is_there(tool: str, command: str) -> None:
    facts = {"firewall": replace(DROPS_PORT, tool=tool)}
    filtered = node_0_alone(4, present=(0, 1, 3), callers=(calling(hears_us=True),), facts=facts)
    [hit] = check("PRT002", filtered).hits
    assert hit.values["command"] == command


def locking_out(*addresses: str) -> dict[str, FirewallFacts]:
    rules = tuple(f"inet filter input: ip saddr {a} drop" for a in addresses)
    return {"firewall": FirewallFacts(tool="nft", drops=drops_of(*rules))}


def test_names_node_0_when_its_filter_drops_the_only_address_that_is_missing() -> None:
    alone = node_0_alone(4, present=(0, 1, 3), facts=locking_out("10.0.0.3"))
    [hit] = check("PRT002", alone).hits
    assert (hit.culprits.nodes, hit.culprits.links, hit.confidence) == ((0,), ((2, 0),), Confidence.LIKELY)
    assert hit.values["command"] == "nft insert rule inet filter input ip saddr 10.0.0.3 accept"
    assert check("JOB001", alone).state == "clear"


def test_a_node_locked_out_in_both_families_is_one_node() -> None:
    rules = ("inet filter input: ip saddr 10.0.0.3 drop", "inet filter input: ip6 saddr fd00::3 drop")
    net = healthy_node(0, 4).net
    assert isinstance(net, NetFacts)
    eth0 = replace(net.interfaces[1], addresses=("10.0.0.1/24", "fd00::1/64"))
    facts = {"firewall": FirewallFacts(tool="nft", drops=drops_of(*rules)), "net": replace(net, interfaces=(eth0,))}
    [hit] = check("PRT002", node_0_alone(4, present=(0, 1, 3), facts=facts)).hits
    assert hit.culprits.links == ((2, 0),)


@cases(
    "addresses",
    [("10.0.0.3", "10.0.0.66"), ("192.0.2.7",), ("10.0.0.2",), ("10.0.0.0/24",)],
    ids=["more addresses than nodes", "another subnet", "a node that is here", "a whole subnet"],
)
def test_an_address_that_may_be_anybodys_explains_nothing(addresses: tuple[str, ...]) -> None:
    alone = node_0_alone(4, present=(0, 1, 3), facts=locking_out(*addresses))
    assert check("PRT002", alone).state == "clear"
    assert check("JOB001", alone).state == "hit"
