"""The table of connections: real ones, in namespaces too, and answers of any kernel."""

import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allready.lab import Lab
from allready.lab.faults import OneWayDrop
from allready.live.node.inet_diag import PROBE_TIMER, connections, parse
from allready.live.node.sockets import MAX_ROWS, Owner, listeners, owners, trouble
from allready.model.live import SocketRow
from tests.live.node.nodes import Node, until

MakeNode = Callable[..., Node]

RECEIVER = """
import os, socket, sys, time
server = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
with open(os.environ["PORT"] + ".new", "w") as file: file.write(str(server.getsockname()[1]))
os.rename(os.environ["PORT"] + ".new", os.environ["PORT"])
peer, _ = server.accept()
time.sleep(600)
"""
SENDER = """
import os, socket, sys, time
while not os.path.exists(os.environ["PORT"]): time.sleep(0.02)
peer = socket.create_connection((sys.argv[1], int(open(os.environ["PORT"]).read())))
every = float(sys.argv[2])
while True:
    peer.sendall(bytes(1 << 16))
    time.sleep(every)
"""


def pair(make_node: MakeNode, tmp_path: Path, address: str, *, every_s: float = 0.0, **options: object) -> Node:
    """Rank 0 never reads what rank 1 sends it."""
    commands = [[sys.executable, "-c", RECEIVER, address], [sys.executable, "-c", SENDER, address, str(every_s)]]
    return make_node([], commands=commands, environments=[{"PORT": str(tmp_path / "port")}] * 2, **options)


def sockets_of(node: Node, rank: int) -> list[SocketRow]:
    return [row for row in node.observer.gather(1, deadline_s=0.6).sockets if row.rank == rank]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_what_the_other_side_does_not_read_queues_on_both_sides(
    make_node: MakeNode, tmp_path: Path, address: str
) -> None:
    try:
        socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET).close()
    except OSError:
        pytest.skip("no IPv6 here")
    node = pair(make_node, tmp_path, address)
    (sender,) = until(lambda: sockets_of(node, 1), lambda rows: bool(rows) and rows[0].send_queue_bytes > 100_000)
    (receiver,) = [r for r in sockets_of(node, 0) if r.remote_port == sender.local_port]
    assert sender.pid == node.processes[1].pid
    assert (sender.remote, sender.remote_port) == (address, receiver.local_port)
    assert receiver.receive_queue_bytes > 10_000
    assert sender.state == receiver.state == "ESTABLISHED"
    assert sender.bytes_acked is not None
    assert sender.bytes_acked > 10_000
    assert sender.rtt_s is not None
    assert receiver.bytes_received is not None
    # Its window is closed: the kernel asks again and again, and is answered every time.
    time.sleep(1.0)
    (sender,) = sockets_of(node, 1)
    assert sender.backoff <= 1
    assert sender.receiver_limited_s is None or sender.receiver_limited_s > 0.2


def test_sockets_come_now_and_then_only(make_node: MakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allready.live.node.observer.FULL_EVERY_S", 0.8)
    node = pair(make_node, tmp_path, "127.0.0.1")
    until(node.look, lambda s: bool(s.sockets))
    assert node.look().sockets == ()
    assert node.look().links == ()
    assert until(node.look, lambda s: bool(s.sockets), timeout_s=5).links


@pytest.mark.lab
def test_what_is_not_acknowledged_backs_off(lab2: Lab, tmp_path: Path) -> None:
    """Ranks on two nodes; the agent of the sender's node sees it, inside its namespace."""
    sender, receiver = 1, 0
    port = tmp_path / "port"
    address = lab2.view.address(receiver)
    reads = RECEIVER.replace("time.sleep(600)", "while peer.recv(1 << 20): pass")
    lab2.popen(receiver, [sys.executable, "-c", reads, address], env={"PORT": str(port)})
    sending = lab2.popen(sender, [sys.executable, "-c", SENDER, address, "0.05"], env={"PORT": str(port)})

    def look() -> list[SocketRow]:
        return _in_node(lab2, sender, sending.pid)

    (before,) = until(look, lambda rows: bool(rows) and (rows[0].bytes_acked or 0) > 1 << 17)
    assert (before.backoff, before.remote) == (0, address)
    fault = lab2.apply(OneWayDrop(source=sender, target=receiver))
    (stuck,) = until(look, lambda rows: rows[0].backoff >= 2)
    assert stuck.unacked > 0
    assert stuck.retransmits >= 2
    assert stuck.send_queue_bytes > 0
    fault.undo()
    (after,) = until(look, lambda rows: rows[0].backoff == 0)
    assert after.total_retransmits >= stuck.total_retransmits


IN_NODE = """
import json, sys
from msgspec.structs import asdict
from allready.live.node.sockets import owners, rows_of
print(json.dumps([asdict(r) for r in rows_of(owners([(1, int(sys.argv[1]))]), timeout_s=1.0)]))
"""


def _in_node(lab: Lab, node: int, pid: int) -> list[SocketRow]:
    import json

    done = lab.run(node, [sys.executable, "-c", IN_NODE, str(pid)])
    assert done.returncode == 0, done.stderr
    return [SocketRow(**row) for row in json.loads(done.stdout)]


def test_rows_in_trouble_come_first_and_not_too_many() -> None:
    quiet = SocketRow(rank=0, pid=1, local="a", local_port=1, remote="b", remote_port=2)
    stuck = SocketRow(rank=0, pid=1, local="a", local_port=1, remote="b", remote_port=2, backoff=3)
    full = SocketRow(rank=0, pid=1, local="a", local_port=1, remote="b", remote_port=2, send_queue_bytes=5)
    assert sorted([quiet, full, stuck], key=trouble, reverse=True) == [stuck, full, quiet]
    assert MAX_ROWS == 512


def test_a_socket_belongs_to_the_rank_and_not_to_the_worker_that_inherited_it() -> None:
    import os

    with socket.create_server(("127.0.0.1", 0)) as server:
        found = owners([(3, os.getpid()), (4, os.getpid())])
        assert found[os.fstat(server.fileno()).st_ino] == Owner(3, os.getpid())
        assert listeners(server.getsockname()[1], timeout_s=1.0) == (os.fstat(server.fileno()).st_ino,)


def test_an_ordinary_user_sees_his_connections() -> None:
    """Without rights over the network; a child gives them up."""
    import os
    import subprocess

    if os.geteuid() != 0:
        pytest.skip("every other test shows it already")
    code = (
        "import ctypes, os, socket\nfrom allready.live.node.sockets import owners, rows_of\n"
        "import encodings.idna\n"
        "os.setgid(65534); os.setuid(65534); ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"  # dumpable as any program
        "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname())\n"
        "print(len(rows_of(owners([(0, os.getpid())]), timeout_s=1.0)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.strip() == "1", done.stderr


def _message(
    *,
    timer: int = 0,
    probes: int = 0,
    backoff: int = 0,
    info_bytes: int = 232,
    family: int = socket.AF_INET,
    window: int = 65535,
    last_ack_ms: int = 0,
    options: int = 2,
) -> bytes:
    head = struct.pack("=BBBB", family, 1, timer, 7)
    identity = struct.pack("!HH", 4000, 29500) + socket.inet_aton("10.0.0.1") + bytes(12) + socket.inet_aton("10.0.0.2")
    rest = struct.pack("=IIIII", 0, 11, 22, 1000, 4242)
    info = bytearray(300)
    info[3], info[4] = probes, backoff
    struct.pack_into("=I", info, 8, 204_000)
    struct.pack_into("=I", info, 24, 3)
    struct.pack_into("=I", info, 56, last_ack_ms)
    struct.pack_into("=II", info, 68, 150, 30)
    struct.pack_into("=I", info, 228, window)
    struct.pack_into("=Q", info, 120, 1 << 40)
    struct.pack_into("=I", info, 140, 5)
    struct.pack_into("=I", info, 144, 77)
    struct.pack_into("=Q", info, 200, 1 << 41)
    info[5] = options
    struct.pack_into("=I", info, 216, 6)
    attribute = struct.pack("=HH", 4 + info_bytes, 2) + bytes(info[:info_bytes])
    return head + identity + bytes(12) + bytes(12) + rest + attribute


def row_of(**options: int) -> SocketRow:
    found = parse(_message(**options))
    assert found is not None
    return found[1]


def test_an_answer_of_a_new_kernel_is_read_whole() -> None:
    assert (parse(_message()) or (0, None))[0] == 4242
    found = row_of(timer=1, backoff=4)
    assert (found.local, found.local_port, found.remote, found.remote_port) == ("10.0.0.1", 4000, "10.0.0.2", 29500)
    assert (found.receive_queue_bytes, found.send_queue_bytes) == (11, 22)
    assert (found.backoff, found.retransmits, found.unacked) == (4, 7, 3)
    assert (found.rto_s, found.rtt_s, found.bytes_acked, found.unsent_bytes) == (0.204, 0.00015, 1 << 40, 77)
    assert (found.bytes_sent, found.segments_received, found.rtt_variation_s) == (1 << 41, 5, 0.00003)


def test_what_came_twice_is_known_only_where_both_ends_have_sack() -> None:
    assert [row_of(options=n).needless_retransmits for n in (0, 1, 2, 7)] == [None, None, 6, 6]
    assert row_of(options=2, info_bytes=216).needless_retransmits is None


def test_what_an_old_kernel_does_not_tell_is_unknown_and_not_zero() -> None:
    found = row_of(timer=1, backoff=4, info_bytes=104)
    assert (found.backoff, found.rtt_s) == (4, 0.00015)
    assert (found.bytes_acked, found.unsent_bytes, found.min_rtt_s, found.bytes_sent, found.busy_s) == (None,) * 5
    bare = row_of(info_bytes=0)
    assert (bare.backoff, bare.rto_s, bare.bytes_acked) == (0, None, None)


def test_probes_of_a_closed_window_count_only_while_unanswered() -> None:
    assert row_of(timer=PROBE_TIMER, backoff=9, probes=0).backoff == 0
    assert row_of(timer=PROBE_TIMER, backoff=9, probes=5).backoff == 5


def test_a_window_that_was_closed_over_data_in_flight_is_no_broken_path() -> None:
    """The kernel repeats the data as if it were lost, and the other side acknowledges every repetition."""
    assert row_of(timer=1, backoff=6, window=0, last_ack_ms=100).backoff == 0
    assert row_of(timer=1, backoff=6, window=0, last_ack_ms=60_000).backoff == 6
    assert row_of(timer=1, backoff=6, window=65535, last_ack_ms=100).backoff == 6


def test_ipv4_in_ipv6_is_shown_as_the_other_side_shows_it() -> None:
    body = bytearray(_message(family=socket.AF_INET6))
    body[8:24] = bytes(10) + b"\xff\xff" + socket.inet_aton("10.0.0.9")
    found = parse(bytes(body))
    assert found is not None
    assert found[1].local == "10.0.0.9"


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    for body in (data, bytes([socket.AF_INET]) + data, _message()[:72] + data):
        found = parse(body)
        assert found is None or isinstance(found[1], SocketRow)


def test_netlink_that_does_not_answer_in_time_says_so() -> None:
    from allready.errors import FactUnavailable

    def all_of(found: Iterator[tuple[int, SocketRow]]) -> list[tuple[int, SocketRow]]:
        return list(found)

    with pytest.raises(FactUnavailable, match="in time"):
        all_of(connections(timeout_s=-1.0))
