"""Whether this machine can have a lab: by making a very small one."""

import os
import tempfile
from pathlib import Path

from allready.errors import AllreadyError
from allready.lab import holders
from allready.lab.faults import PortDropped
from allready.lab.lab import Lab


def probe(*, packet_filters: bool = False) -> str | None:
    """Why this machine cannot have a lab; None when it can.

    It makes a lab of one node and takes it down again, in less than a second.

    Args:
        packet_filters: also try a fault that needs nft.
    """
    try:
        holders.tool("unshare", "util-linux")
        with tempfile.TemporaryDirectory(prefix="allready-probe-") as folder:
            Path(folder).chmod(0o700)
            with Lab.up(1, name=f"probe-{os.getpid()}", state_dir=Path(folder) / "labs") as lab:
                if packet_filters:
                    lab.apply(PortDropped(node=0, port=1)).undo()
    except (AllreadyError, OSError) as error:
        return str(error)
    return None
