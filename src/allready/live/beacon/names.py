"""Names that both sides know.  Imports built-in modules only: it stands before the first line of every script."""

import _signal  # type: ignore[import-not-found]  # `signal` builds enumerations for 4 ms

RUN_DIR = "ALLREADY_RUN_DIR"
RANK_DIR = "ALLREADY_RANK_DIR"
PARENT_PID = "ALLREADY_PARENT_PID"

STACK_SIGNAL: int = _signal.SIGRTMIN + 7
"""Prints the Python stacks.  A real-time signal, because libraries and schedulers use SIGUSR1 and SIGUSR2."""
NOT_OURS = frozenset(_signal.valid_signals()) - {
    STACK_SIGNAL, _signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGABRT, _signal.SIGTRAP,
    _signal.SIGSYS,
}  # fmt: skip
"""Signals that the beacon's threads leave to the script's: all but those of a fault in a thread itself."""

HUNG = "hung"
"""In the run folder as long as the verdict says that the job hangs, or that all wait for ranks that sleep."""
HANGS = "hangs"
ASLEEP = "asleep"
"""What that file holds in each case; behind the second, which may end by itself, for how many seconds the user lets a
wait last, where they said so.  Other words, and none, are no verdict."""
RANK_FOLDER: "list[str]" = []
"""In a rank with a beacon: the folder that it shares with its agent."""
FORMED: "list[tuple[int, tuple[int, ...]]]" = [(0, ())]
"""Of the runtime library's present group: its number, which grows, and its ranks, by their numbers at the start of the
job, in the order of the numbers that torch gave them.  0: it has none."""
NEWEST_EPOCH: "list[int]" = [0]
"""The number of the last group that it has had; also after its end."""

# In the folder of a rank: its cell, what torch's recorders hold, Python stacks on demand, and those of the moment of a
# crash.  A process has one recorder for each backend (torch 2.15), or one for NCCL and one for all others: the first
# name is of the recorder in use, or of that of the GPUs; the second of Gloo's beside it; then of any further one.
CELL, STACKS, CRASH = "cell", "stacks.txt", "crash.txt"
AGREED = "agreed.jsonl"
"""The failure of the runtime library that the process ended by, as an event log."""
RINGS = "ring.json", "ring.cpu.json", "ring.2.json", "ring.3.json", "ring.4.json"
DUMPS = "dump.pickle", "dump.cpu.pickle", "dump.2.pickle", "dump.3.pickle", "dump.4.pickle"
