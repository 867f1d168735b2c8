"""A free port; imports next to nothing."""

import contextlib
import socket


def any_port(*, backlog: int | None = None) -> socket.socket:
    """A listening socket on a free port, for IPv4 and, where the machine has it, IPv6; the caller closes it."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # compiled in, but switched off
            return socket.create_server(("", 0), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server(("", 0), backlog=backlog)
