"""Where the addresses of a name come from."""

from collections.abc import Collection, Iterable

from allready.model import HostsLine


def by_hosts(lines: Iterable[HostsLine], addresses: Collection[str]) -> str:
    """ " (/etc/hosts line 3, 7)": the lines that give these addresses; "" where another source of the resolver did."""
    found = [str(one.line) for one in lines if one.address in addresses]
    return f" (/etc/hosts line {', '.join(found)})" if found else ""
