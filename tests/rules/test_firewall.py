"""The command that opens a port in the firewall that is there."""

import shlex

import pytest

from allready.judging.firewall import answers_dropped, nft_chain, open_command, own_drop
from allready.model import DropRule, FirewallFacts
from tests.cases import cases

FIREWALLD = 'rule family="ipv4" source address="10.0.0.2" port port="4-5" protocol="tcp" accept'


@cases(
    ("tool", "ports", "peers", "lines"),
    [
        ("nft", (29500, 29500), ["10.0.0.2"],
         ["nft insert rule inet filter input ip saddr 10.0.0.2 tcp dport 29500 accept"]),
        ("nft", (40000, 50000), ["10.0.0.2", "10.0.0.3"],
         ["nft insert rule inet filter input 'ip saddr { 10.0.0.2, 10.0.0.3 } tcp dport 40000-50000 accept'"]),
        ("nft", (4, 5), [], ["nft insert rule inet filter input tcp dport 4-5 accept"]),
        ("iptables", (40000, 50000), ["10.0.0.2", "10.0.0.3"],
         ["iptables -I INPUT -p tcp -s 10.0.0.2,10.0.0.3 --dport 40000:50000 -j ACCEPT"]),
        ("iptables", (1, 1), ["10.0.0.2", "fd00::2"],
         ["iptables -I INPUT -p tcp -s 10.0.0.2 --dport 1 -j ACCEPT",
          "ip6tables -I INPUT -p tcp -s fd00::2 --dport 1 -j ACCEPT"]),
        ("ufw", (4, 5), ["10.0.0.0/24"], ["ufw insert 1 allow proto tcp from 10.0.0.0/24 to any port 4:5"]),
        ("firewalld", (4, 5), ["10.0.0.2"], [f"firewall-cmd --add-rich-rule='{FIREWALLD}'"]),
        ("firewalld", (29500, 29500), [], ["firewall-cmd --add-port=29500/tcp"]),
    ],
)  # fmt: skip
def test_prints_the_command(tool: str, ports: tuple[int, int], peers: list[str], lines: list[str]) -> None:
    command = open_command(tool, ports, peers)
    assert command == " && ".join(lines)
    shlex.split(command)


@cases(
    ("protocols", "is_named"),
    [
        ((), True),
        (("tcp",), True),
        (("tcp", "udp"), True),
        (("6",), True),
        (("all",), True),
        (("udp",), False),
        (("udp", "icmp"), False),
    ],
)
def test_a_drop_of_several_protocols_is_one_of_tcp_where_that_is_among_them(
    protocols: tuple[str, ...], is_named: bool
) -> None:
    rule = DropRule(text="drop", verdict="drop", protocols=protocols, sources=("10.0.0.2",))
    assert (own_drop(FirewallFacts(tool="nft", drops=(rule,)), "10.0.0.2") is not None) == is_named
    answers = DropRule(
        text="drop", verdict="drop", hooks=("output",), protocols=protocols, source_ports=((29500, 29500),)
    )
    assert (answers_dropped(FirewallFacts(tool="nft", drops=(answers,)), 29500) is not None) == is_named


def test_opens_the_chain_that_drops() -> None:
    line = open_command("nft", (1, 1), ["10.0.0.2"], chain="ip guard in")
    assert line.startswith("nft insert rule ip guard in ")
    evil = DropRule(text="drop", verdict="drop", chain="ip x; rm -rf y")
    assert open_command("nft", (1, 1), [], chain=nft_chain(evil)).startswith("nft insert rule inet filter input ")


@cases(
    ("tool", "ports", "peers"),
    [("nft", (1, 1), ["$(reboot)"]), ("nft", (0, 0), []), ("nft", (5, 4), []), ("pf", (1, 1), [])],
)
def test_refuses_what_is_no_address_or_port(tool: str, ports: tuple[int, int], peers: list[str]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        open_command(tool, ports, peers)
