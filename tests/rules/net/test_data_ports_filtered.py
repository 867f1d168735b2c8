from msgspec.structs import replace

from allready.model import Confidence, FactMissing, FirewallFacts, NetFacts, Severity
from tests.cases import cases
from tests.fleets import check, commands, fleet, healthy_path, healthy_reach, healthy_roll
from tests.rules.firewalls import drops_of
from tests.rules.net.made import SILENT, UNHEARD, both, elsewhere, master_path, net_of, not_looked_at, reached


def into(node: int, num_nodes: int) -> dict[tuple[int, int], dict[str, object]]:
    return {(a, node): SILENT for a in range(num_nodes) if a != node}


def out_of(node: int, num_nodes: int) -> dict[tuple[int, int], dict[str, object]]:
    return dict.fromkeys(((node, b) for b in range(num_nodes) if b != node), SILENT)


def test_names_the_node_that_lets_nobody_in() -> None:
    [hit] = check("NET001", reached(4, paths=into(2, 4))).hits
    assert hit.culprits.nodes == (2,)
    assert hit.culprits.links == ((0, 2), (1, 2), (3, 2))
    assert hit.confidence is Confidence.LIKELY  # its own rules were read and drop nothing


def test_is_certain_where_the_closed_nodes_rules_drop_or_could_not_be_read() -> None:
    for known in (FactMissing("permission denied"), FirewallFacts(tool="nft", drops=drops_of("inet f in: drop"))):
        [hit] = check("NET001", reached(4, paths=into(2, 4), firewall={2: known})).hits
        assert hit.confidence is Confidence.CERTAIN


def test_names_the_receiver_of_two_nodes_when_only_one_direction_is_filtered() -> None:
    [hit] = check("NET001", reached(2, paths={(0, 1): SILENT})).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((1,), ((0, 1),))


def test_names_the_sender_whose_own_filter_lets_nothing_out() -> None:
    shut = FirewallFacts(
        tool="nft",
        drops=drops_of("inet t in: drop", "inet t out: drop"),
        out_dropped_ports=((1024, 29499), (29501, 65535)),
    )
    evidence = reached(2, paths={(0, 1): SILENT}, firewall={0: shut, 1: FirewallFacts(tool=None)})
    [hit] = check("NET001", evidence).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((0,), ((0, 1),))
    assert commands("NET001", hit)[0] == "nft insert rule inet t out tcp dport 32768-60999 accept"
    both_shut = FirewallFacts(tool="nft", drops=drops_of("inet t in: drop"), dropped_ports=((1024, 65535),))
    [hit] = check("NET001", reached(2, paths={(0, 1): SILENT}, firewall={0: shut, 1: both_shut})).hits
    assert hit.culprits.nodes == (1,)


def test_blames_nobody_when_both_of_two_nodes_filter() -> None:
    [hit] = check("NET001", reached(2, paths=both(0, 1, SILENT))).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((0, 1), (1, 0)))


def test_names_only_the_link_when_others_get_in() -> None:
    [hit] = check("NET001", reached(4, paths={(1, 3): SILENT})).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((1, 3),))


def test_names_a_node_that_reaches_nobody_while_all_others_do() -> None:
    [hit] = check("NET001", reached(4, paths=out_of(3, 4))).hits
    assert hit.culprits.nodes == (3,)


def test_explains_a_mute_pair_by_the_firewalls_that_both_ends_have() -> None:
    # Workers with a default-deny firewall: node 0 talks to each of them, nothing at all passes between them.
    paths = {(a, b): SILENT for a in range(3) for b in range(3) if a != b and b != 0}
    datagrams = dict.fromkeys(paths, UNHEARD)
    case = reached(3, paths=paths, datagrams=datagrams)
    [hit] = check("NET001", case).hits
    assert hit.culprits.nodes == (1, 2)
    assert set(hit.culprits.links) == set(paths)
    assert check("NET005", case).state == check("NET004", case).state == "clear"


def test_knows_by_the_master_port_that_packets_pass() -> None:
    quiet = {**both(0, 1, SILENT)}
    unheard = both(0, 1, UNHEARD)
    roll = elsewhere(2)
    assert check("NET001", reached(2, paths=quiet, datagrams=unheard, roll=roll)).state == "clear"
    assert check("NET001", reached(2, master_path(1), paths=quiet, datagrams=unheard, roll=roll)).state == "hit"


def test_is_less_sure_when_another_port_of_the_same_node_answers() -> None:
    case = reached(3, healthy_path(0, 1, port=50001, **SILENT))
    [hit] = check("NET001", case).hits
    assert (hit.confidence, hit.culprits.nodes) == (Confidence.LIKELY, ())


UFW = "ufw insert 1 allow proto tcp from {} to any port 32768:60999"
IPTABLES = "iptables -I INPUT -p tcp -s 10.0.0.1,10.0.0.3 --dport 32768:60999 -j ACCEPT"
NFT = "nft insert rule inet filter input 'ip saddr { 10.0.0.1, 10.0.0.3 } tcp dport 32768-60999 accept'"


@cases(
    ("tool", "command"),
    [
        ("nft", NFT),
        ("iptables", IPTABLES),
        ("ufw", f"{UFW.format('10.0.0.1')} && {UFW.format('10.0.0.3')}"),
        ("a tool of tomorrow", IPTABLES),
    ],
)
def test_gives_the_command_of_the_firewall_that_is_there(tool: str, command: str) -> None:
    drops = ("inet filter input: tcp dport 32768-60999 drop",)
    case = reached(3, paths=into(1, 3), firewall={1: FirewallFacts(tool=tool, drops=drops_of(*drops))})
    [hit] = check("NET001", case).hits
    assert commands("NET001", hit)[0] == command
    assert hit.evidence[0].text == drops[0]


def test_names_the_networks_of_many_peers_and_the_node_s_own_port_range() -> None:
    facts = net_of(5, 40)
    case = reached(40, paths=into(5, 40), net={5: replace(facts, local_port_range=(40000, 41000))})
    [hit] = check("NET001", case).hits
    assert commands("NET001", hit)[0] == ("iptables -I INPUT -p tcp -s 10.0.0.0/24 --dport 40000:41000 -j ACCEPT")
    assert len(str(hit.values["links"])) < 200


def test_survives_addresses_that_are_none() -> None:
    reach = healthy_reach(2, {(0, 1): {**SILENT, "address": "$(reboot)"}, (1, 0): {"address": "; rm -rf /"}})
    case = fleet(2, reach=reach, net={0: NetFacts(interfaces=(), local_port_range=(-5, 99999))})
    outcome = check("NET001", case)
    assert outcome.crash is None
    assert "rm -rf" not in str([h.values for h in outcome.hits])


def test_leaves_out_a_node_whose_connection_broke() -> None:
    roll = replace(healthy_roll(3), lost=(2,))
    assert check("NET001", reached(3, paths=into(2, 3), roll=roll)).state == "clear"


def test_is_clear_when_every_data_port_answers() -> None:
    assert check("NET001", fleet(4)).state == "clear"


def test_is_clear_when_datagrams_alone_are_filtered() -> None:
    assert check("NET001", reached(3, datagrams={(0, 1): UNHEARD, (1, 0): UNHEARD})).state == "clear"


def test_is_not_checked_without_probes() -> None:
    outcome = check("NET001", not_looked_at())
    assert (outcome.state, outcome.unchecked) == ("not_checked", {None: "--stages facts"})


def test_blocks() -> None:
    from allready.judging.loading import load

    assert load()["NET001"].severity is Severity.BLOCKER
