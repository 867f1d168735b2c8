"""Bonds of the kernel's bonding driver, from /proc/net/bonding, which is of this network namespace."""

from collections.abc import Iterator

from allready.facts.host import Host, names_in, number, text_of
from allready.model import Bond, BondLink
from allready.names import BONDS_FOLDER

MAX_BONDS = 32
MAX_LINKS = 32


def bonds(host: Host) -> Iterator[Bond]:
    """All bonds; none where the driver is not loaded."""
    for name in names_in(host, BONDS_FOLDER)[:MAX_BONDS]:
        bond = parse_bond(name, text_of(host, f"{BONDS_FOLDER}/{name}"))
        if bond is not None:
            yield bond


def parse_bond(name: str, text: str) -> Bond | None:
    """The driver's own description; None for anything else.

    The part of the bond comes first, then one for each of its interfaces, beginning with `Slave Interface`.
    """
    parts = [dict(_rows(part)) for part in f"\n{text}".split("\nSlave Interface:")]
    own = parts[0]
    if "Bonding Mode" not in own:
        return None
    names = [part.partition("\n")[0].strip() for part in f"\n{text}".split("\nSlave Interface:")[1:]]
    active = own.get("Currently Active Slave")
    return Bond(
        name=name,
        mode=own["Bonding Mode"][:64],
        is_up=own.get("MII Status") == "up",
        links=tuple(
            BondLink(name=link[:32], is_up=rows.get("MII Status") == "up", aggregator=_aggregator(rows))
            for link, rows in list(zip(names, parts[1:], strict=True))[:MAX_LINKS]
        ),
        active=active[:32] if active and active != "None" else None,
        aggregator=_aggregator(own),
    )


def _aggregator(rows: dict[str, str]) -> int | None:
    return number(rows.get("Aggregator ID", ""))


def _rows(part: str) -> Iterator[tuple[str, str]]:
    """Names and values; of a name that comes twice the last counts, but no bond has one."""
    for line in part.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip(), value.strip()
