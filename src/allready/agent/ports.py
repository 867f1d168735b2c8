"""Ports that a job needs beside the master port."""

import contextlib
import socket

from allready.errors import ExchangeError


def free_port(near: int) -> int:
    """A free port, if possible just above `near`, where a firewall that was opened for a range lets it through."""
    for port in (*(range(near + 1, min(near + 40, 65536)) if near >= 1024 else ()), 0):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("", port))
            return int(sock.getsockname()[1])
    raise ExchangeError("no TCP port is free on this machine")
