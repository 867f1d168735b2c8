"""Ports for tests."""

import socket


def free_port(address: str = "127.0.0.1") -> int:
    """A TCP port that no rank listens on right now."""
    with socket.socket() as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])
