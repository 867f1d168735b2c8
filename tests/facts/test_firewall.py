# ruff: noqa: E501 - rules and commands stand as they are printed

import os

import pytest

from allready.errors import FactUnavailable
from allready.facts.firewall import collect_firewall, summary
from allready.facts.iptables import parse_iptables
from allready.facts.nft import parse_nft, parse_nft_json, rule_texts
from allready.facts.packet_filter import ALL_PORTS, port_bits, port_ranges
from allready.model import FirewallFacts
from tests.cases import cases
from tests.conftest import NO_LAB
from tests.facts.helpers import in_namespace, json_in_namespace
from tests.facts.saved_host import SavedHost

ROOT = {"/proc/self/status": "CapEff:\t000001ffffffffff\n"}
ASK = """$PYTHON -c '
import json, msgspec
from allready.facts.firewall import collect_firewall
from allready.facts.live import LiveHost
print(json.dumps(msgspec.to_builtins(collect_firewall(LiveHost(), timeout_s=20))))'
"""


def nft(rules: str, policy: str = "accept", more: str = "") -> FirewallFacts:
    """Facts of one input chain."""
    text = (
        f"table inet filter {{\n{more}\tchain input {{\n\t\ttype filter hook input priority filter; policy {policy};\n"
        + "".join(f"\t\t{rule}\n" for rule in rules.splitlines())
        + "\t}\n}\n"
    )
    return summary(parse_nft(text), "nft")


def texts(facts: FirewallFacts) -> list[str]:
    return [drop.text for drop in facts.drops]


def but(*ports: int) -> tuple[tuple[int, int], ...]:
    return tuple(port_ranges(ALL_PORTS & ~sum(1 << p for p in ports)))


@cases(
    ("rules", "policy", "ports"),
    [
        ("", "accept", ()),
        ("", "drop", ((1, 65535),)),
        ("tcp dport 29500 drop", "accept", ((29500, 29500),)),
        ("tcp dport 29500 counter packets 7 bytes 420 drop", "accept", ((29500, 29500),)),
        ("tcp dport 29500 reject with tcp reset", "accept", ((29500, 29500),)),
        ("tcp dport { 29500, 40000-50000 } drop", "accept", ((29500, 29500), (40000, 50000))),
        ("tcp dport != 22 drop", "accept", but(22)),
        ("tcp dport 1024-65535 drop", "accept", ((1024, 65535),)),
        ('iifname "eth0" tcp dport 29500 drop', "accept", ((29500, 29500),)),
        ('iif "lo" accept\nct state established,related accept\ntcp dport { 22, 80 } accept', "drop", but(22, 80)),
        (
            "ct state vmap { established : accept, related : accept, invalid : drop }\ntcp dport ssh accept",
            "drop",
            but(22),
        ),
        ("ct state { established, related } accept\nct state invalid drop", "accept", ()),
        ("ct state new tcp dport 29500 drop", "accept", ((29500, 29500),)),
        ("ct state != new drop", "accept", ()),
        ("meta l4proto tcp tcp dport 5 drop\nudp dport 6 drop\nicmp type echo-request drop", "accept", ((5, 5),)),
        ("ip protocol udp drop\nmeta l4proto { udp, icmp } drop", "accept", ()),
        ("tcp dport 29500 accept\ntcp dport 29500 drop", "accept", ()),
        ("tcp dport vmap { 22 : accept, 29500 : drop }", "accept", ((29500, 29500),)),
        ("tcp flags syn / syn,ack tcp dport 7 drop", "accept", ((7, 7),)),
        ("tcp flags & (fin | syn | rst | ack) == syn tcp dport 7 drop", "accept", ((7, 7),)),
        ("tcp flags != syn ct state new drop", "accept", ()),
        # Conditions that are not weighed: nothing is claimed.
        ("ip saddr 10.0.0.2 drop", "accept", ()),
        ("meta length > 1400 drop", "accept", ()),
        ("ip saddr 10.0.0.0/8 accept", "drop", ()),
        ("limit rate 5/second drop", "accept", ()),
        ("tcp dport @unknown drop", "accept", ()),
        ('log prefix "drop " drop', "accept", ((1, 65535),)),
    ],
)
def test_weighs_nft_rules_as_a_new_connection_meets_them(
    rules: str, policy: str, ports: tuple[tuple[int, int], ...]
) -> None:
    assert nft(rules, policy).dropped_ports == ports


def test_follows_jumps_sets_and_returns() -> None:
    more = """\
\tset open {
\t\ttype inet_service
\t\tflags interval
\t\telements = { 22, 80-90,
\t\t\t     443 }
\t}
\tchain services {
\t\ttcp dport @open accept
\t\ttcp dport 5000 return
\t\ttcp dport 5000-5001 drop
\t}
"""
    facts = nft("jump services\ntcp dport 6000 goto services", "accept", more)
    assert facts.dropped_ports == ((5001, 5001),)
    assert texts(facts) == ["inet filter services: tcp dport 5000-5001 drop"]


def test_survives_chains_that_call_each_other() -> None:
    more = "\tchain a {\n\t\tjump b\n\t}\n\tchain b {\n\t\tjump a\n\t\ttcp dport 9 drop\n\t}\n"
    assert nft("jump a", "accept", more).dropped_ports == ((9, 9),)


@cases(
    ("conditions", "expected"),
    [
        ("ip saddr 10.0.0.2 meta l4proto { tcp, udp }", (("tcp", "udp"), (), ("10.0.0.2",), True)),
        ("ip saddr 10.0.0.2 ip protocol 6", (("6",), (), ("10.0.0.2",), True)),
        ("ip saddr 10.0.0.2 meta l4proto { udp, icmp }", (("udp", "icmp"), (), ("10.0.0.2",), False)),
        ('iifname { "eth0", "eth1" }', ((), ("eth0", "eth1"), (), True)),
        ("fib daddr . iif type != { local, broadcast }", ((), (), (), False)),
        ("fib saddr . iif oif missing", ((), (), (), False)),
        ('ip saddr . iifname { 10.0.0.2 . "eth0" }', ((), (), (), False)),
    ],
)
def test_says_what_a_rule_narrows(conditions: str, expected: tuple[object, ...]) -> None:
    [rule] = nft(f"{conditions} drop").drops
    assert (rule.protocols, rule.interfaces, rule.sources, rule.is_by_address_alone) == expected


def test_lists_drops_of_single_peers_without_claiming_the_port() -> None:
    facts = nft("ip saddr 10.0.0.2 counter packets 1 bytes 2 drop\nct state invalid drop")
    assert texts(facts) == ["inet filter input: ip saddr 10.0.0.2 drop"]


@cases(
    "text",
    [
        "",
        "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t}\n}\n",
        "table ip nat {\n\tchain p {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\ttcp dport 80 dnat to 10.0.0.1:80\n\t}\n}",
        "table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t\tdrop\n\t}\n}",
        "table inet off {\n\tflags dormant\n\tchain i {\n\t\ttype filter hook input priority 0; policy drop;\n\t}\n}",
    ],
)
def test_finds_no_firewall_where_nothing_is_filtered(text: str) -> None:
    assert summary(parse_nft(text), "nft") == FirewallFacts(tool=None)


def test_a_filter_for_ipv6_alone_drops_no_ipv4_port() -> None:
    text = "table ip6 f {\n\tchain i {\n\t\ttype filter hook input priority 0; policy drop;\n\t}\n}"
    assert summary(parse_nft(text), "nft").dropped_ports == ()


IPTABLES = """\
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:mine - [0:0]
-A INPUT -i lo -j ACCEPT
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p icmp -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 -m comment --comment "let me in" -j ACCEPT
-A INPUT -p tcp -m multiport --dports 80,443,5000:5010 -j ACCEPT
-A INPUT -s 10.0.0.9/32 -p tcp -j DROP
-A INPUT -j mine
-A mine -p tcp -m tcp --dport 6000 -j ACCEPT
-A mine -p tcp -m tcp --dport 7000 -j RETURN
-A FORWARD -j DROP
COMMIT
"""


def test_weighs_iptables_rules() -> None:
    facts = summary(parse_iptables(IPTABLES), "iptables")
    assert facts.dropped_ports == but(22, 80, 443, *range(5000, 5011), 6000)
    assert texts(facts) == ["-A INPUT -s 10.0.0.9/32 -p tcp -j DROP", "-P INPUT DROP"]


@cases(
    ("rule", "ports"),
    [
        ("-A INPUT -p tcp -m tcp --dport 29500 -j DROP", ((29500, 29500),)),
        ("-A INPUT -p tcp -m tcp ! --dport 22 -j REJECT --reject-with icmp-port-unreachable", but(22)),
        ("-A INPUT -p tcp -m tcp --dport 7 --tcp-flags FIN,SYN,RST,ACK SYN -j DROP", ()),
        ("-A INPUT -m state --state NEW -p tcp -m tcp --dport 7 -j DROP", ((7, 7),)),
        ("-A INPUT -m conntrack --ctstate INVALID -j DROP", ()),
        ("-A INPUT ! -i lo -p tcp -m tcp --dport 7 -j DROP", ((7, 7),)),
        ("-A INPUT ! -p tcp -j DROP", ()),
        ("-A INPUT -m length --length 1400:65535 -j DROP", ()),
        ("-A INPUT -j LOG --log-prefix 'x y '\n-A INPUT -p tcp -m tcp --dport 7 -j DROP", ((7, 7),)),
        ("-A INPUT -p tcp --syn -m tcp --dport 7 -j DROP", ((7, 7),)),
        ('-A INPUT -p tcp "unclosed', ()),
        ("-A INPUT ! -i eth0 -j DROP", ()),
        ("-A INPUT -m addrtype --dst-type BROADCAST -j DROP", ()),
        ("-A INPUT -m addrtype ! --dst-type LOCAL -j DROP", ()),
    ],
)
def test_weighs_single_iptables_rules(rule: str, ports: tuple[tuple[int, int], ...]) -> None:
    assert summary(parse_iptables(f"*filter\n:INPUT ACCEPT [0:0]\n{rule}\nCOMMIT\n"), "iptables").dropped_ports == ports


@cases(
    ("rule", "is_closed"),
    [
        ("--dst-type BROADCAST", False), ("--dst-type MULTICAST", False), ("--dst-type UNICAST", True),
        ("! --dst-type LOCAL", True), ("--dst-type BLACKHOLE", False),
    ],
)  # fmt: skip
def test_a_connection_that_goes_out_goes_to_one_machine(rule: str, is_closed: bool) -> None:
    text = f"*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m addrtype {rule} -j DROP\nCOMMIT\n"
    assert bool(summary(parse_iptables(text), "iptables").out_dropped_ports) is is_closed


@pytest.mark.parametrize(
    ("chain", "tool"), [("ufw-user-input", "ufw"), ("INPUT_ZONES", "firewalld"), ("mine", "iptables")]
)
def test_recognises_managers_by_their_chains(chain: str, tool: str) -> None:
    text = f"*filter\n:INPUT ACCEPT [0:0]\n:{chain} - [0:0]\n-A INPUT -j {chain}\n-A {chain} -p udp -j DROP\nCOMMIT\n"
    host = SavedHost(
        {
            "files": ROOT,
            "commands": {"nft -a list ruleset": {"unavailable": "nft: not installed"}, "iptables-save": text},
        }
    )
    assert collect_firewall(host, timeout_s=1).tool == tool


def test_recognises_firewalld_in_nftables() -> None:
    text = "table inet firewalld {\n\tchain filter_INPUT {\n\t\ttype filter hook input priority 10; policy accept;\n\t\treject with icmpx admin-prohibited\n\t}\n}\n"
    facts = collect_firewall(SavedHost({"files": ROOT, "commands": {"nft -a list ruleset": text}}), timeout_s=1)
    assert (facts.tool, facts.dropped_ports) == ("firewalld", ((1, 65535),))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"/proc/self/status": "CapEff:\t0000000000000000\n"}, "needs root"),
        ({"/proc/self/status": "CapEff:\t0000000000000000\n", "/etc/ufw/ufw.conf": "ENABLED=yes\n"}, "ufw is in use"),
        (ROOT, "not saved"),
    ],
)
def test_says_why_it_cannot_know(files: dict[str, str], words: str) -> None:
    with pytest.raises(FactUnavailable, match=words):
        collect_firewall(SavedHost({"files": files}), timeout_s=1)


def test_ports_to_ranges_and_back() -> None:
    bits = port_bits(1, 1) | port_bits(80, 90) | port_bits(65535, 70000)
    assert list(port_ranges(bits)) == [(1, 1), (80, 90), (65535, 65535)]
    assert list(port_ranges(ALL_PORTS)) == [(1, 65535)]
    assert port_bits(5, 4) == port_bits(70000, 80000) == 0


def test_reads_the_real_nft() -> None:
    facts = json_in_namespace(
        """
        nft -f - <<'RULES'
table inet guard {
  set open { type inet_service; flags interval; elements = { 22, 1000-1010 } }
  chain in {
    type filter hook input priority 0; policy drop;
    iif lo accept
    ct state established,related accept
    ct state invalid drop
    tcp dport @open counter accept
    tcp dport { 29500, 29510-29520 } log prefix "x" reject with tcp reset comment "why { not"
    ip saddr 10.0.0.7 drop
  }
  chain out { type filter hook output priority 0; tcp sport 5 drop; }
}
RULES
"""
        + ASK,
        "nft",
    )
    assert facts["tool"] == "nft"
    assert facts["dropped_ports"] == [list(r) for r in but(22, *range(1000, 1011))]
    drops = {drop["text"]: drop for drop in facts["drops"]}
    assert drops["inet guard in: ip saddr 10.0.0.7 drop"]["sources"] == ["10.0.0.7"]
    assert drops["inet guard in: policy drop"]["is_policy"]
    assert drops["inet guard out: tcp sport 5 drop"]["source_ports"] == [[5, 5]]
    assert drops["inet guard out: tcp sport 5 drop"]["hooks"] == ["output"]
    assert not any("invalid" in text for text in drops)


EVERYTHING = """
table inet guard {
  set open { type inet_service; flags interval; elements = { 22, 1000-1010 } }
  set hosts { type ipv4_addr; elements = { 10.0.0.3, 10.0.0.4 } }
  chain svc { tcp dport 5000 return; tcp dport 5000-5001 drop; }
  chain in {
    type filter hook input priority 0; policy drop;
    iif lo accept
    iifname "eth0" tcp dport 29500 drop
    ct state vmap { established : accept, related : accept, invalid : drop }
    ct state != new drop
    tcp dport @open counter accept
    tcp dport { 29500, 29510-29520 } log prefix "x" reject with tcp reset comment "why { not"
    tcp dport vmap { 22 : accept, 29501 : drop, 80 : jump svc }
    iifname vmap { "lo" : accept, "eth0" : jump svc }
    tcp dport != 22 tcp dport < 1024 drop
    ip saddr 10.0.0.7 drop
    ip saddr != 10.0.0.7 drop
    ip saddr { 10.0.0.7, 10.1.0.0/16 } drop
    ip6 saddr fe80::1 drop
    ip saddr @hosts drop
    tcp flags syn / syn,ack tcp dport 7 drop
    tcp flags & (fin | syn | rst | ack) == syn tcp dport 8 drop
    tcp flags != syn ct state new drop
    meta l4proto { udp, icmp } drop
    ip protocol udp drop
    udp dport 6 drop
    icmp type echo-request drop
    limit rate 5/second drop
    meta length > 1400 drop
    meta nfproto ipv6 drop
    th dport 99 drop
    jump svc
    numgen random mod 100 < 3 drop
    ct state new,established tcp dport 11 drop
    meta mark 0x1 drop
    tcp sport 29500 drop
    ip saddr 10.0.0.2 meta l4proto { tcp, udp } drop
    fib daddr . iif type != { local, broadcast } drop
    fib daddr type broadcast drop
    fib saddr . iif oif missing drop
    ip saddr . tcp dport { 10.0.0.8 . 81 } drop
  }
  chain out { type filter hook output priority 0; tcp sport 5 drop; ip daddr 10.0.0.9 drop; }
}
table inet off {
  flags dormant
  chain i {
    type filter hook input priority 0; policy drop;
  }
}
table netdev nd {
  chain ing {
    type filter hook ingress device lo priority 0; tcp dport 3 drop;
  }
}
"""


def test_the_json_of_nft_and_its_text_mean_the_same() -> None:
    show = "nft -a list ruleset; echo ---; nft -j list ruleset"
    listed = in_namespace(f"nft -f - <<'RULES'\n{EVERYTHING}\nRULES\n{show}", "nft")
    text, _, json_text = listed.partition("---\n")
    by_text = summary(parse_nft(text), "nft")
    by_json = summary(parse_nft_json(json_text, rule_texts(text)), "nft")
    assert len(by_json.drops) > 20
    for one, other in zip(by_text.drops, by_json.drops, strict=True):
        assert one == other
    assert by_text == by_json
    assert any(d.handle is not None and "10.1.0.0/16" in d.sources for d in by_json.drops)


JSON = """{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
{"table": {"family": "inet", "name": "t", "handle": 1}},
{"chain": {"family": "inet", "table": "t", "name": "in", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},
{"rule": {"family": "inet", "table": "t", "chain": "in", "handle": 2, "expr": [
  {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [7, {"range": [10, 12]}]}}},
  {"counter": {"packets": 1, "bytes": 2}}, {"drop": null}]}},
{"rule": {"family": "inet", "table": "t", "chain": "in", "handle": 3, "expr": [{"xt": {"type": "match", "name": "recent"}}, {"drop": null}]}}
]}"""
TEXT = """table inet t { # handle 1
	chain in { # handle 1
		type filter hook input priority filter; policy accept;
		tcp dport { 7, 10-12 } counter packets 1 bytes 2 drop # handle 2
		xt match "recent" drop # handle 3
	}
}
"""


def test_json_says_what_a_rule_means_and_the_text_how_it_is_printed() -> None:
    commands = {"nft -a list ruleset": TEXT, "nft -j list ruleset": JSON}
    facts = collect_firewall(SavedHost({"files": ROOT, "commands": commands}), timeout_s=1)
    assert facts.dropped_ports == ((7, 7), (10, 12))
    assert texts(facts) == ["inet t in: tcp dport { 7, 10-12 } drop", 'inet t in: xt match "recent" drop']
    first, second = facts.drops
    assert (first.chain, first.handle, first.hooks, first.ports) == ("inet t in", 2, ("input",), ((7, 7), (10, 12)))
    assert (first.is_conditional, second.is_conditional) == (False, True)


@cases("answer", ["", "{}", '{"nftables": [{"rule": {}}]}', '{"nftables": 3}', "[" * 10_000])
def test_without_usable_json_the_text_alone_is_read(answer: str) -> None:
    commands = {"nft -a list ruleset": TEXT, "nft -j list ruleset": answer}
    facts = collect_firewall(SavedHost({"files": ROOT, "commands": commands}), timeout_s=1)
    assert (facts.tool, facts.dropped_ports) == ("nft", ((7, 7), (10, 12)))
    assert facts.drops[0].handle == 2


@pytest.mark.parametrize("command", ["iptables", "iptables-legacy"])
def test_reads_the_real_iptables(command: str) -> None:
    if command == "iptables-legacy" and os.geteuid() != 0:
        pytest.skip(f"{NO_LAB}: not root: the kernel's list of legacy tables is closed to user namespaces")
    facts = json_in_namespace(
        f"""
        {command} -A INPUT -p tcp --dport 29500 -j DROP
        {command} -A INPUT -p tcp -m multiport --dports 5000,6000:6010 -j REJECT --reject-with tcp-reset
        {command} -A INPUT -s 10.0.0.2 -p udp -j DROP
        """
        + ASK,
        "nft",
        command,
    )
    assert facts["tool"] == "iptables"
    assert facts["dropped_ports"] == [[5000, 5000], [6000, 6010], [29500, 29500]]
    assert "-A INPUT -p tcp -m tcp --dport 29500 -j DROP" in [drop["text"] for drop in facts["drops"]]


def test_finds_no_firewall_in_a_fresh_namespace() -> None:
    empty: dict[str, list[str]] = {"drops": [], "dropped_ports": [], "out_dropped_ports": [], "views": []}
    assert json_in_namespace(ASK, "nft") == {"tool": None, **empty}


@pytest.mark.parametrize(
    ("tool", "close"),
    [
        (
            "nft",
            "nft add table ip g; nft 'add chain ip g i { type filter hook input priority 0; }'; nft add rule ip g i tcp dport 29500 drop",
        ),
        ("iptables", "iptables -A INPUT -p tcp --dport 29500 -j DROP"),
    ],
)
def test_the_command_that_it_names_really_opens_the_port(tool: str, close: str) -> None:
    before, after = json_in_namespace(
        f"""
        ip link set lo up
        {close}
        $PYTHON -c '
import json, socket, subprocess
from allready.facts.firewall import collect_firewall
from allready.judging.firewall import open_command, nft_chain, rule_for
from allready.facts.live import LiveHost
def reachable():
    try:
        socket.create_connection(("127.0.0.1", 29500), timeout=0.5).close()
    except TimeoutError:
        return False
    return True
with socket.create_server(("127.0.0.1", 29500)):
    facts = collect_firewall(LiveHost(), timeout_s=20)
    assert facts.tool == "{tool}", facts
    before = reachable()
    subprocess.run(open_command(facts.tool, (29500, 29500), ["127.0.0.1"], chain=nft_chain(rule_for(facts, (29500, 29500)))), shell=True, check=True)
    print(json.dumps([before, reachable()]))'
        """,
        tool,
        "nft",
    )
    assert (before, after) == (False, True)
