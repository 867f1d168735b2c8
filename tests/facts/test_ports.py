import os
import socket

import pytest

from allready.errors import FactUnavailable
from allready.facts.live import LiveHost
from allready.facts.ports import half_open, parse_sockets, port_holder
from tests.facts.helpers import json_in_namespace
from tests.facts.saved_host import SavedHost

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100000A:733C 0200000A:D431 03 00000000:00000000 01:00000062 00000001     0        0 0 1 0000000000000000
   2: 0100000A:733C 0200000A:D432 03 00000000:00000000 01:00000062 00000001     0        0 0 1 0000000000000000
   3: 0100000A:733C 0300000A:D432 01 00000000:00000000 01:00000062 00000001     0        0 9 1 0000000000000000
   4: nonsense
"""  # noqa: E501 - as the kernel prints it
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1F91 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0000000000000000 100 0 0 10 0
   1: 0000000000000000FFFF00000100000A:733C 0000000000000000FFFF00000400000A:D431 03 00000000:00000000 01:00000062 00000001     0        0 0 1 0000000000000000
   2: 000000FD000000000000000001000000:733C 000000FD000000000000000002000000:D431 03 00000000:00000000 01:00000062 00000001     0        0 0 1 0000000000000000
"""  # noqa: E501


def saved(**more: object) -> SavedHost:
    files = {"/proc/net/tcp": TCP, "/proc/net/tcp6": TCP6, "/etc/passwd": "ann:x:1000:1000::/home/ann:/bin/sh\n"}
    return SavedHost({"files": files, **more})  # type: ignore[dict-item]


def test_lists_who_hangs_half_way() -> None:
    addresses = [address for address, _ in half_open(saved(), 29500)]
    assert addresses == ["10.0.0.2", "10.0.0.2", "10.0.0.4", "fd00::2"]
    assert half_open(saved(), 29501) == ()


def test_names_the_user_when_the_process_is_hidden() -> None:
    holder = port_holder(saved(probes={"socket_owner:4711": None}), 8080)
    assert holder is not None
    assert (holder.pid, holder.user, holder.command) == (None, "ann", None)


def test_says_that_nobody_listens() -> None:
    assert port_holder(saved(), 29500) is None


def test_says_that_the_table_cannot_be_read() -> None:
    with pytest.raises(FactUnavailable, match="/proc/net/tcp"):
        port_holder(SavedHost({}), 1)


def test_passes_over_rows_that_it_cannot_read() -> None:
    assert len(list(parse_sockets(TCP))) == 4


def test_finds_this_very_process_behind_a_real_port() -> None:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as sock:
            sock.bind((address, 0))
            sock.listen()
            port = sock.getsockname()[1]
            holder = port_holder(LiveHost(), port)
            assert holder is not None
            assert holder.pid == os.getpid()
            assert holder.command
            assert "py" in holder.command
            assert holder.user
            assert (holder.started or "").startswith("20")
        assert port_holder(LiveHost(), port) is None


def test_sees_a_real_handshake_whose_answer_is_lost() -> None:
    found = json_in_namespace(
        """
        ip link set lo up; ip addr add 10.3.0.1/32 dev lo; ip addr add 10.3.0.2/32 dev lo
        nft add table inet t; nft 'add chain inet t out { type filter hook output priority 0; }'
        nft add rule inet t out tcp sport 29500 drop
        $PYTHON -c '
import json, socket, time
from allready.facts.ports import half_open
from allready.facts.live import LiveHost
with socket.create_server(("10.3.0.1", 29500)) as server, socket.socket() as client:
    client.bind(("10.3.0.2", 0)); client.setblocking(False); client.connect_ex(("10.3.0.1", 29500))
    until = time.monotonic() + 10
    while not (found := half_open(LiveHost(), 29500)) and time.monotonic() < until:
        time.sleep(0.05)
    print(json.dumps([[address for address, _ in found], half_open(LiveHost(), 29501)]))'
    """,
        "nft",
    )
    assert found == [["10.3.0.2"], []]
