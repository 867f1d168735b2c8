"""What a reader remembers from one log to the next."""

from allready.evidence.lines.feed import SpareRows
from allready.evidence.lines.lane import LoopMemory
from allready.evidence.lines.templates import Workspace


class ScanMemory:
    """It changes how long scanning takes and never what it gives.  For one log at a time."""

    def __init__(self) -> None:
        self.loops = LoopMemory()
        self.spare_rows = SpareRows()
        self.workspace = Workspace()
