"""Names that both sides know.  Imports built-in modules only: it stands before the first line of every script."""

import _signal  # type: ignore[import-not-found]  # `signal` builds enumerations for 4 ms

RUN_DIR = "ALLREADY_RUN_DIR"
RANK_DIR = "ALLREADY_RANK_DIR"
PARENT_PID = "ALLREADY_PARENT_PID"

STACK_SIGNAL: int = _signal.SIGRTMIN + 7
"""Prints the Python stacks.  A real-time signal, because libraries and schedulers use SIGUSR1 and SIGUSR2."""

# In the folder of a rank: its cell, what torch's recorders hold (of NCCL, or of the only one; and of the CPU backends
# beside NCCL), Python stacks on demand, and those of the moment of a crash.
CELL, RING, CPU_RING, DUMP, CPU_DUMP = "cell", "ring.json", "ring.cpu.json", "dump.pickle", "dump.cpu.pickle"
STACKS, CRASH = "stacks.txt", "crash.txt"
