"""What a node's own filter does to the connections that begin on it."""

import pytest

from allready.facts.firewall import summary
from allready.facts.iptables import parse_iptables
from allready.facts.nft import parse_nft

NFT = """table inet t {
	chain out {
		type filter hook output priority filter; policy accept;
		oifname "lo" accept
		ct state established,related accept
		tcp dport 29500 drop
	}
	chain in {
		type filter hook input priority filter; policy accept;
		tcp dport 8080 drop
	}
}
"""
IPTABLES = """*filter
:INPUT ACCEPT [0:0]
:OUTPUT DROP [0:0]
-A INPUT -p tcp --dport 8080 -j DROP
-A OUTPUT -o lo -j ACCEPT
-A OUTPUT -p tcp --dport 22 -j ACCEPT
COMMIT
"""


def test_nft_tells_in_from_out() -> None:
    facts = summary(parse_nft(NFT), "nft")
    assert (facts.dropped_ports, facts.out_dropped_ports) == (((8080, 8080),), ((29500, 29500),))
    assert [d.text for d in facts.drops if d.is_outbound] == ["inet t out: tcp dport 29500 drop"]
    assert len(facts.drops) == 2


def test_iptables_tells_in_from_out() -> None:
    facts = summary(parse_iptables(IPTABLES, space="ip"), "iptables")
    assert (facts.dropped_ports, facts.out_dropped_ports) == (((8080, 8080),), ((1, 21), (23, 65535)))
    assert [d.text for d in facts.drops if d.is_outbound] == ["-P OUTPUT DROP"]


@pytest.mark.parametrize("rule", ["ip daddr 10.0.0.9 tcp dport 29500 drop", "limit rate 5/second tcp dport 29500 drop"])
def test_a_rule_with_a_condition_claims_nothing(rule: str) -> None:
    facts = summary(parse_nft(NFT.replace("tcp dport 29500 drop", rule)), "nft")
    assert facts.out_dropped_ports == ()
