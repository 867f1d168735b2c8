"""Faults of a machine's network, made in a namespace of its own and found by what `doctor` reads there."""

import json

import pytest

from tests.cases import cases
from tests.facts.helpers import in_namespace

pytestmark = pytest.mark.jobs

ASK = r"""
$PYTHON -c '
import json, sys, time
from allready.facts.order import Also, FactsOrder
from allready.facts.reading import read_all
from allready.preflight.doctor.examine import judge, placed
from allready.preflight.doctor.request import launch_for
flags = {"num_nodes": 2, "nproc_per_node": None, "master_addr": None, "master_port": None}
launch, _ = launch_for(flags, {})
also = Also(imports=False, ports=(29500, 29501), peers=tuple(sys.argv[1:]))
found = read_all(FactsOrder(launch=launch, also=also, until_s=time.monotonic() + 20.0))
report = judge([placed(found.facts)], None)
print(json.dumps({f.code: f.message for f in report.findings}))' PEERS
"""
TWO = """
ip link set lo up
for i in 0 1; do
    ip link add e$i type veth peer name p$i; ip link set e$i up; ip link set p$i up
done
"""
APART = f"{TWO}ip addr add 10.0.0.1/24 dev e0; ip addr add 10.0.1.1/24 dev e1\n"
ALIKE = f"{TWO}ip addr add 10.0.0.1/24 dev e0; ip addr add 10.0.0.2/24 dev e1\n"
HOSTS = 'printf "127.0.0.1 localhost\\n10.0.0.1 $(cat /proc/sys/kernel/hostname)\\n" > /tmp/hosts.$$\n'
HOSTS += "mount --bind /tmp/hosts.$$ /etc/hosts; rm /tmp/hosts.$$\n"
"""The own name is the address of e0."""
TWIN = "ip route add default via 10.0.0.254 dev e0; ip route append default via 10.0.1.254 dev e1\n"
SHARED = "ip route add default nexthop via 10.0.0.254 dev e0 nexthop via 10.0.1.254 dev e1\n"
STRICT = "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.e0.rp_filter=1 net.ipv4.conf.e1.rp_filter=1\n"
BY_SOURCE = "ip rule add from 10.0.0.2 lookup 7; ip route add 10.0.0.0/24 dev e1 table 7\n"
CLOSED = """nft -f - <<END
table inet filter {
  chain input {
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    iif lo accept
    RULE
  }
}
END
"""
WATCHED = ("NET020", "NET022", "NET024", "NET028", "PRT013", "PRT014")


def codes(script: str, *peers: str) -> dict[str, str]:
    ask = ASK.replace("PEERS", " ".join(peers))
    made: dict[str, str] = json.loads(in_namespace(script + ask, *(["nft"] if "nft " in script else []), mount=True))
    return {code: message for code, message in made.items() if code in WATCHED}


@cases(
    "script, peers, expected",
    [
        (APART + HOSTS, (), {}),
        (APART + HOSTS + TWIN, (), {"NET020": "uses e0 for all"}),
        (APART + HOSTS + SHARED, (), {"NET020": "among these 2 ways"}),
        (APART + HOSTS + "ip route add default via 10.0.0.254\n", (), {}),
        (APART + HOSTS + "ip route add default via 10.0.1.254\n", (), {"NET028": "by e1 (default route)"}),
        (APART + HOSTS, ("10.0.1.9",), {"NET028": "to 10.0.1.9 leave by e1"}),
        (ALIKE + HOSTS + STRICT, (), {"NET020": "10.0.0.0/24", "NET022": "e0, e1 are in one subnet"}),
        (ALIKE + HOSTS + STRICT + BY_SOURCE, (), {}),
        (APART + HOSTS + STRICT, (), {}),
        (APART + HOSTS + "sysctl -qw net.core.somaxconn=5\n", (), {"NET024": "at most 5"}),
        (APART + HOSTS + "sysctl -qw net.ipv4.ip_local_port_range='40000 40032'\n", (), {"PRT014": "33 ports only"}),
        (APART + HOSTS + "sysctl -qw net.ipv4.ip_local_port_range='40000 40999'\n", (), {}),
    ],
)
def test_what_is_wrong_is_found_and_what_looks_alike_is_left_alone(
    script: str, peers: tuple[str, ...], expected: dict[str, str]
) -> None:
    found = codes(script, *peers)
    assert set(found) == set(expected)
    assert all(words in found[code] for code, words in expected.items()), found


@cases(
    "rule, peers, expected",
    [
        ("ip saddr 10.0.0.0/24 accept", ("10.0.0.9",), ""),
        ("ip saddr 10.0.0.0/24 accept", ("10.0.0.9", "10.0.1.9"), "peer 10.0.1.9"),
        ("iifname e0 accept", ("10.0.0.9",), ""),
        ("iifname e1 accept", ("10.0.0.9",), "policy drop"),
        ("tcp dport { 29500, 29501, 32768-60999 } accept", ("10.0.0.9",), ""),
        ("tcp dport 22 accept", (), "policy drop"),
    ],
)
def test_a_packet_filter_is_judged_for_ports_peers_and_interfaces(
    rule: str, peers: tuple[str, ...], expected: str
) -> None:
    message = codes(APART + HOSTS + CLOSED.replace("RULE", rule), *peers).get("PRT013", "")
    assert bool(message) == bool(expected)
    assert expected in message
