"""Interfaces: up or down, carrier, counters, in namespaces too."""

import json
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allready.lab import Lab
from allready.lab.faults import LinkDown
from allready.live.node.links import LinkWatch, links, parse
from allready.model.live import LinkRow
from tests.live.node.nodes import until

IN_NODE = """
import json
from msgspec.structs import asdict
from allready.live.node.links import links
print(json.dumps([asdict(link) for link in links(timeout_s=1.0)]))
"""


def in_node(lab: Lab, node: int) -> dict[str, LinkRow]:
    done = lab.run(node, [sys.executable, "-c", IN_NODE])
    assert done.returncode == 0, done.stderr
    return {row["name"]: LinkRow(**row) for row in json.loads(done.stdout)}


@pytest.mark.lab
def test_a_link_that_goes_down_shows_on_its_node_only(lab2: Lab) -> None:
    before = in_node(lab2, 0)["eth0"]
    assert before.is_up
    assert before.has_carrier
    fault = lab2.apply(LinkDown(node=0))
    down = until(lambda: in_node(lab2, 0)["eth0"], lambda link: not (link.is_up and link.has_carrier))
    other = in_node(lab2, 1)["eth0"]
    assert not down.has_carrier
    assert other.is_up
    assert other.has_carrier
    fault.undo()
    until(lambda: in_node(lab2, 0)["eth0"], lambda link: link.is_up and link.has_carrier)


def test_the_loopback_interface_is_no_address() -> None:
    watch = LinkWatch()
    assert "lo" in {row.name for row in watch.sample(timeout_s=1.0)}
    assert "127.0.0.1" not in watch.addresses(timeout_s=2.0)


def test_a_message_is_read_and_nothing_is_guessed() -> None:
    def attribute(kind: int, value: bytes) -> bytes:
        return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)

    head = struct.pack("=BxHiII", 0, 1, 2, 0x1 | 0x10000, 0)
    stats = struct.pack("=8Q", 1, 2, 3000, 4000, 5, 6, 7, 8)
    body = head + attribute(3, b"eth9\0") + attribute(23, stats) + attribute(33, b"\1")
    assert parse(body) == LinkRow(
        name="eth9", is_up=True, has_carrier=True, sent_bytes=4000, received_bytes=3000, num_errors=11, num_dropped=15
    )
    assert parse(head + attribute(3, b"eth9\0") + attribute(33, b"\0")) == LinkRow(
        name="eth9", is_up=True, has_carrier=False
    )
    assert parse(head) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    parse(data)
    parse(bytes(16) + data)


def test_every_interface_of_this_machine_is_there() -> None:
    import socket

    assert {name for _, name in socket.if_nameindex()} <= {link.name for link in links(timeout_s=1.0)}
