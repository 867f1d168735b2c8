"""Ports for tests."""

import socket


def free_port() -> int:
    """A TCP port that nobody listens on right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
