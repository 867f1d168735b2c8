"""/etc/hosts of a node, as a function of the lab and of the edits that faults make."""

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from allready.lab.network import LabView


class HostsEdit(Struct, frozen=True):
    """Give `name` another address on one node, or (None) none at all."""

    node: int
    name: str
    address: str | None


def render(lab: LabView, edits: Sequence[HostsEdit] = ()) -> str:
    """The file's text: every node by name and IPv4 address, and as NAME-v6 by IPv6 address, after `edits`.

    IPv4 and IPv6 have different names, because a name with both would be resolved differently from library to library.
    """
    rows = [("127.0.0.1", "localhost"), ("::1", "ip6-localhost")]
    for node in range(lab.num_nodes):
        rows.append((lab.address(node), lab.name(node)))
        if address6 := lab.address6(node):
            rows.append((address6, f"{lab.name(node)}-v6"))
    for edit in edits:
        rows = [row for row in rows if row[1] != edit.name]
        if edit.address is not None:
            rows.append((edit.address, edit.name))
    return "".join(f"{address}\t{name}\n" for address, name in rows)


def rewrite(path: Path, text: str) -> None:
    """Change the file in place: a bind mount follows the inode, so it must stay the same one.

    One write padded to the old length, then the cut: a reader never sees half of the names.
    """
    data = text.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.fchmod(descriptor, 0o644)
        os.pwrite(descriptor, data.ljust(os.fstat(descriptor).st_size, b"\n"), 0)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)
