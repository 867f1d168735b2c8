from typing import Any

from msgspec.structs import replace

from allready.facts.firewall import summary
from allready.facts.iptables import parse_iptables
from allready.facts.nft import parse_nft
from allready.facts.packet_filter import Packet
from allready.model import FactMissing, FirewallFacts, Hit, LaunchFacts, Severity, UsageFacts
from tests.cases import cases
from tests.fleets import check, fleet, healthy_node

PEER, OTHER = "10.0.0.77", "192.168.7.2"


def nft(
    *rules: str, policy: str = "accept", hook: str = "input", peers: tuple[str, ...] = (PEER, OTHER), by: str = "eth0"
) -> FirewallFacts:
    """As it is read for these peers, to whom an interface leads."""
    lines = "".join(f"\t\t{rule}\n" for rule in rules)
    head = f"\t\ttype filter hook {hook} priority filter; policy {policy};\n"
    chains = parse_nft(f"table inet filter {{\n\tchain {hook} {{\n{head}{lines}\t}}\n}}\n")
    return summary(chains, "nft", [Packet(peer=peer, interface=by) for peer in peers], ["lo", "eth0", "eth1"])


def iptables(*rules: str, policy: str = "ACCEPT", chains: str = "") -> FirewallFacts:
    text = f"*filter\n:INPUT {policy} [0:0]\n{chains}" + "".join(f"{rule}\n" for rule in rules) + "COMMIT\n"
    return summary(parse_iptables(text), "iptables", [Packet(peer=PEER, interface="eth0")])


def found(
    firewall: Any, *, nodes: int = 1, ports: Any = (29500, 29510), peers: tuple[str, ...] = ()
) -> tuple[Hit, ...]:
    """What the rule says of one machine that would be one of `nodes`."""
    launch = healthy_node(0, 1).launch
    assert isinstance(launch, LaunchFacts)
    facts = {
        "firewall": {0: firewall},
        "usage": {0: UsageFacts(asked_ports=ports, asked_peers=peers)},
        "launch": {0: replace(launch, num_nodes=nodes)},
    }
    return check("PRT013", fleet(1, **facts)).hits


UFW = ":ufw-user-input - [0:0]\n"


@cases(
    "firewall, command",
    [
        (nft("tcp dport 29500 drop"), "nft insert rule inet filter input ip saddr 10.0.0.77 tcp dport 29500 accept"),
        (nft("ct state established accept", "tcp dport 22 accept", policy="drop"),
         "nft insert rule inet filter input ip saddr 10.0.0.77 tcp dport 29500-29510 accept"),
        (iptables("-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT", policy="DROP"),
         "iptables -I INPUT -p tcp -s 10.0.0.77 --dport 29500:29510 -j ACCEPT"),
        (iptables("-A INPUT -j ufw-user-input", policy="DROP", chains=UFW),
         "ufw insert 1 allow proto tcp from 10.0.0.77 to any port 29500:29510"),
    ],
)  # fmt: skip
def test_names_the_ports_and_the_opening_command_of_the_tool(firewall: FirewallFacts, command: str) -> None:
    hit = found(firewall, peers=(PEER,), nodes=2)[0]
    assert hit.values["command"] == command
    assert hit.culprits.nodes == (0,)
    assert hit.severity is None


def test_the_ports_that_the_kernel_gives_count_for_several_nodes_only() -> None:
    closed = nft("tcp dport 29500-29510 accept", policy="drop")
    [hit] = found(closed, nodes=2)
    assert hit.values["ports"] == "32768-60999"
    assert found(closed) == ()


def test_each_port_that_was_asked_for_counts_of_the_kernels_range_most() -> None:
    closed = nft("tcp dport 40000-40010 drop")
    [hit] = found(closed, ports=(30000, 50000), nodes=2)
    assert hit.values["ports"] == "40000-40010"
    assert found(closed, ports=None, nodes=2) == ()


def test_a_port_of_a_job_on_this_machine_is_a_warning() -> None:
    [hit] = found(nft("tcp dport 29500-29510 drop"))
    assert hit.severity is Severity.WARNING
    assert "--peers" in str(hit.values["without"])


def test_a_rule_that_names_the_peer() -> None:
    [hit] = found(nft(f"ip saddr {PEER} drop"), peers=(PEER,))
    assert hit.values["peer"] == PEER
    assert found(nft(f"ip saddr {PEER} drop"), peers=("10.0.0.78",)) == ()


def test_connections_that_this_machine_may_not_open() -> None:
    closed = nft("tcp dport 1024-65535 drop", hook="output")
    assert {hit.values["direction"] for hit in found(closed, nodes=2)} == {"out"}
    assert found(closed) == ()


def test_a_peer_that_is_not_among_those_let_in_is_named() -> None:
    closed = nft("ip saddr 10.0.0.0/24 accept", policy="drop")
    [hit] = found(closed, peers=(PEER, OTHER), ports=(29500, 29500))
    assert (hit.values["peer"], hit.values["ports"]) == (OTHER, "29500")
    assert hit.values["command"] == "nft insert rule inet filter input ip saddr 192.168.7.2 tcp dport 29500 accept"
    assert found(closed, peers=(PEER,)) == ()


def test_a_range_and_a_negated_network_count_by_the_peers_address() -> None:
    assert found(nft("ip saddr 10.0.0.70-10.0.0.80 drop"), peers=(PEER,))
    assert found(nft("ip saddr 10.0.0.1-10.0.0.9 drop"), peers=(PEER,)) == ()
    outside = nft("ip saddr != 10.0.0.0/24 drop")
    assert [hit.values["peer"] for hit in found(outside, peers=(PEER, OTHER), ports=(29500, 29500))] == [OTHER]


def test_a_peer_is_judged_by_the_interface_that_leads_to_it() -> None:
    closed = ('iifname "eth1" drop',)
    assert found(nft(*closed), peers=(PEER,)) == ()
    assert found(nft(*closed, by="eth1"), peers=(PEER,))[0].values["rule"] == 'inet filter input: iifname "eth1" drop'


def test_without_peers_the_interfaces_of_the_job_count_also_by_the_beginning_of_their_name() -> None:
    for rule in ('iifname "eth0" drop', 'iifname "eth*" tcp dport 1024-65535 drop', 'iifname != "wan0" drop'):
        assert [hit.values["direction"] for hit in found(nft(rule), nodes=2)] == ["in", "in"], rule
    for rule in (
        'iifname "eth1" drop',
        'iifname "wan*" drop',
        'iifname != "eth0" drop',
        'iifname != { "eth0", "lo" } drop',
    ):
        assert found(nft(rule), nodes=2) == (), rule


FIREWALLD = """\
table inet firewalld {
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_INPUT_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_INPUT_ZONES {
		iifname "eth1" goto filter_IN_trusted
		goto filter_IN_public
	}
	chain filter_IN_trusted {
		accept
	}
	chain filter_IN_public {
		jump filter_IN_public_allow
		meta l4proto { icmp, ipv6-icmp } accept
	}
	chain filter_IN_public_allow {
		tcp dport 22 accept
		ip6 daddr fe80::/64 udp dport 546 accept
	}
}
"""


def test_zones_of_firewalld_by_the_interface_that_leads_to_the_peer() -> None:
    packets = [Packet(peer=PEER, interface="eth0"), Packet(peer=OTHER, interface="eth1")]
    made = summary(parse_nft(FIREWALLD), "nft", packets, ["lo", "eth0", "eth1"])
    [hit] = found(made, peers=(PEER, OTHER), ports=(29500, 29501))
    assert (hit.values["peer"], hit.values["tool"]) == (PEER, "firewalld")
    assert hit.values["command"] == (
        'firewall-cmd --add-rich-rule=\'rule family="ipv4" source address="10.0.0.77" '
        'port port="29500-29501" protocol="tcp" accept\''
    )
    assert found(made, peers=(OTHER,)) == ()
    assert found(made, nodes=2)[0].values["ports"] == "29500-29510"


def test_where_a_return_under_a_condition_may_lead_to_an_accept_nothing_is_claimed() -> None:
    rules = ("-A INPUT -j ours", "-A ours -m limit --limit 5/min -j RETURN", "-A ours -j ACCEPT")
    assert found(iptables(*rules, policy="DROP", chains=":ours - [0:0]\n"), nodes=2) == ()


def test_what_is_not_for_this_machine_is_dropped_by_every_ufw() -> None:
    rules = (
        "-A INPUT -j ufw-not-local",
        "-A ufw-not-local -m addrtype --dst-type LOCAL -j RETURN",
        "-A ufw-not-local -j DROP",
        "-A INPUT -p tcp -m tcp --dport 1024:65535 -j ACCEPT",
    )
    made = iptables(*rules, policy="DROP", chains=":ufw-not-local - [0:0]\n:ufw-user-input - [0:0]\n")
    assert found(made, nodes=2) == ()


@cases(
    "firewall",
    [
        FirewallFacts(tool=None),
        nft("ip saddr 10.0.0.0/24 accept", policy="drop"),
        nft("tcp dport 1024-65535 accept", policy="drop"),
        nft('iifname "wan0" tcp dport 29500-29510 drop'),
        nft("tcp dport 40000-40010 drop"),
        nft("tcp dport 25 drop", "udp dport 29500 drop"),
        iptables("-A INPUT -i lo -j ACCEPT", "-A INPUT -s 10.0.0.0/24 -j ACCEPT", policy="DROP"),
    ],
)
def test_a_filter_that_lets_the_job_in_is_left_alone(firewall: FirewallFacts) -> None:
    assert found(firewall, nodes=2, peers=(PEER,)) == ()


def test_without_ports_peers_or_other_nodes_a_closed_machine_is_healthy() -> None:
    assert found(nft(policy="drop"), ports=None) == ()


def test_says_where_the_rules_could_not_be_read() -> None:
    assert check("PRT013", fleet(1, firewall={0: FactMissing("needs root")})).unchecked == {0: "needs root"}
