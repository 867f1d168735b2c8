"""The beacon's cell (`proc.cell`): heartbeats, what the rank does as JSON, and numbered requests of the agent.

The file's room is reserved first: a full /dev/shm is an error at the start and never a SIGBUS in the middle of a
training step.
"""

import os

from allready.proc.cell import NUM_WORDS, PAYLOAD_BYTES, SIZE_BYTES, CellWriter

__all__ = ["KINDS", "PAYLOAD_BYTES", "WORDS", "BeaconCell"]

KINDS = ("ring", "dump", "stacks")
"""What can be requested."""
WORDS = {
    "thread": 7,  # the thread of the heartbeat, which also writes stacks; 0: none
    "ring_done": 8, "dump_done": 9, "stacks_done": 10,  # number of the newest request that is answered
    "is_dumping": 11,
    "state": 12, "type": 13, "version": 14,  # addresses of the main thread's state and of `type`, sys.hexversion; or 0
    "stacks_fd": 15,  # the number of the descriptor to which the signal's handler writes; 0: not safe any more
    "ring_wanted": 16, "dump_wanted": 17, "stacks_wanted": 18,  # number of the newest request; the agent writes it
}  # fmt: skip
_NUM_KEPT = NUM_WORDS - 16
_THREAD, _IS_DUMPING, _STACKS_FD = WORDS["thread"], WORDS["is_dumping"], WORDS["stacks_fd"]
_DONE = {kind: WORDS[f"{kind}_done"] for kind in KINDS}


class BeaconCell(CellWriter):
    """The rank's side."""

    def __init__(self, path: str) -> None:
        """Make the cell, or take over the one that is there."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(fd, SIZE_BYTES)
            os.posix_fallocate(fd, 0, SIZE_BYTES)
            super().__init__(fd, num_kept=_NUM_KEPT)
        finally:
            os.close(fd)

    def set_thread(self, native_id: int) -> None:
        """Which thread sends heartbeats and writes stacks; 0 when there is none that could."""
        self._words[_THREAD] = native_id

    def set_place(self, state: int, type_address: int, version: int) -> None:
        """Where the main thread's frames are found."""
        for name, value in (("state", state), ("type", type_address), ("version", version)):
            self._words[WORDS[name]] = value

    def set_stacks_fd(self, fd: int) -> None:
        self._words[_STACKS_FD] = max(0, fd)

    def set_dumping(self, is_dumping: bool) -> None:
        """Whether a thread of ours makes a dump, for which torch imports modules."""
        self._words[_IS_DUMPING] = is_dumping

    def wanted(self) -> tuple[int, int, int]:
        """Numbers of the requests that are not answered yet, in the order of KINDS; 0 where there is none."""
        words = self._words
        ring, dump, stacks = words[16], words[17], words[18]
        return ring if ring != words[8] else 0, dump if dump != words[9] else 0, stacks if stacks != words[10] else 0

    def answer(self, kind: str, number: int) -> None:
        """What request `number` asked for has been written, or there is nothing to write."""
        self._words[_DONE[kind]] = number
