"""Where the addresses of a name come from."""

from collections.abc import Collection, Iterable, Sequence

from allready.judging.stated import Text, said
from allready.model import HostsLine, Phrase


def hosts_lines(lines: Iterable[HostsLine], addresses: Collection[str]) -> str | None:
    """ "3, 7": the lines of the hosts file that give these addresses; None where another source of the resolver did."""
    return ", ".join(str(one.line) for one in lines if one.address in addresses) or None


def resolved(name: str, addresses: Sequence[str], lines: Iterable[HostsLine], error: Text = "") -> Phrase:
    """What a name resolves to, with the lines of the hosts file that say so.

    lines: that the hosts file has for this name; none where another source of the resolver gave the addresses.
    error: the resolver's, where there are no addresses.
    """
    form = "{name} -> {addresses}[[ (/etc/hosts line {lines})]]"
    return said(form, name=name, addresses=", ".join(addresses) or error, lines=hosts_lines(lines, addresses))
