"""The port of the ranks' store: kept from others between the moment it is chosen and the moment the ranks listen."""

import socket

import pytest

from allready.agent.coordinator import free_port, keep_port


def test_jobs_that_start_at_once_get_different_ports() -> None:
    """Seen: two jobs with neighbouring master ports both chose 20014; the later one's ranks found it in use."""
    near = free_port(20_000)
    with keep_port(near) as first, keep_port(near - 1) as second, keep_port(near) as third:
        ports = [sock.getsockname()[1] for sock in (first, second, third)]
    assert len(set(ports)) == 3


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, ""), (socket.AF_INET6, "::")])
def test_who_is_told_the_port_can_listen_on_it(family: socket.AddressFamily, host: str) -> None:
    with keep_port(20_000) as kept:
        port = kept.getsockname()[1]
        with socket.socket(family) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store and gRPC do
            try:
                sock.bind((host, port))
            except OSError as error:
                if family is socket.AF_INET6 and error.errno != 98:
                    pytest.skip("no IPv6 here")
                raise
            sock.listen()
            with keep_port(port - 1) as other:
                assert other.getsockname()[1] != port
