"""How long packets may be: asked of a host's kernel, across a black hole, and of hosts that do not answer."""

import json
import sys

import pytest

from allready.lab import Lab
from allready.lab.faults import LinkDown, MtuBlackHole, PortDropped
from allready.live.node.path_mtu import PathSizes, path_sizes, unanswered
from allready.live.node.reach import UNUSED_PORT
from allready.model import PathSize, SocketRow
from tests.clock import Stopwatch
from tests.live.node.nodes import until

IN_NODE = """
import json, sys
from msgspec.structs import asdict
from allready.live.node.path_mtu import path_sizes
print(json.dumps({k: asdict(v) for k, v in path_sizes({sys.argv[2]: sys.argv[1]}).items()}))
"""


def row(remote: str, **changes: object) -> SocketRow:
    known = {"backoff": 3, "unacked": 1} | changes
    return SocketRow(rank=0, pid=1, local="10.0.0.1", local_port=1, remote=remote, remote_port=2, **known)  # type: ignore[arg-type]


@pytest.mark.lab
def test_a_black_hole_is_found_and_its_size(lab2: Lab) -> None:
    own, other = lab2.view.address(0), lab2.view.address(1)

    def ask() -> dict[str, dict[str, int | None]]:
        done = lab2.run(0, [sys.executable, "-c", IN_NODE, own, other])
        assert done.returncode == 0, done.stderr
        found: dict[str, dict[str, int | None]] = json.loads(done.stdout)
        return found

    # A host answers few such datagrams a second, and this test asks again and again.
    assert lab2.run(1, ["sysctl", "-qw", "net.ipv4.icmp_ratelimit=0"]).returncode == 0
    began = Stopwatch()
    assert ask() == {other: {"passed_bytes": 1500, "lost_bytes": None}}
    assert began.s < 5
    with lab2.apply(MtuBlackHole(node=1, limit_bytes=1410)):
        assert ask() == {other: {"passed_bytes": 1400, "lost_bytes": 1450}}
    with lab2.apply(PortDropped(node=1, port=UNUSED_PORT, protocol="udp")):
        assert ask() == {}  # a firewall: nothing is known
    with lab2.apply(LinkDown(node=1)):
        assert ask() == {}
    until(ask, lambda found: bool(found))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_host_that_refuses_has_got_the_packet(address: str) -> None:
    found = path_sizes({address: address})
    if not found and address == "::1":
        pytest.skip("no IPv6 here")
    assert found[address].lost_bytes is None
    assert found[address].passed_bytes > 1280


def test_only_data_that_goes_unanswered_is_a_reason_to_ask() -> None:
    rows = [
        row("10.0.0.2"),
        row("10.0.0.3", backoff=0),
        row("10.0.0.4", unacked=0),
        row("10.0.0.5", state="SYN_SENT"),
        row("127.0.0.1"),
        row("garbage"),
    ]
    assert unanswered(rows) == {"10.0.0.2": "10.0.0.1"}
    assert PathSizes().ask(rows[1:]) is None


def test_sizes_found_once_stay_while_the_hole_is_there() -> None:
    sizes = PathSizes()
    first, later = PathSize(passed_bytes=1400, lost_bytes=1450), PathSize(passed_bytes=128, lost_bytes=1500)
    assert sizes.judged({"a": first}) == {"a": first}
    assert sizes.judged({"a": later}) == {"a": first}
    gone = PathSize(passed_bytes=1500)
    assert sizes.judged({"a": gone}) == {"a": gone}
    assert sizes.judged({"a": later}) == {"a": later}


def test_addresses_without_a_way_are_left_out() -> None:
    assert path_sizes({"203.0.113.9": "192.0.2.1"}) == {}
