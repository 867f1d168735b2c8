"""Literals that make a line worth keeping although no signature asks for it: what the readers of `evidence.log` need.

A scanner keeps a line that contains any of these; after a `BLOCK_ANCHORS` line it keeps the following ones as well,
because the block says there who died, where and of what.  None has a digit.
"""

BLOCK_ANCHORS: tuple[str, ...] = (
    "Traceback (most recent call last)", "Failures:", "Root Cause", "Fatal Python error",
    "Stack trace of the failed collective", "raised the following async exception", "Rendezvous complete for workers",
    "BAD TERMINATION OF ONE OF YOUR", "mpirun noticed that", "prterun noticed that", "mpiexec noticed that",
    "detected that one or more processes exited", "terminate called after throwing an instance of",
    "Coordination service agent", "JAX distributed service detected fatal errors", "Last error:",
    "stopped sending heartbeats", "timed out task names", "Example stragglers", "*** Process received signal ***",
    "Missing ranks:", "Stalled ranks:", "broadcasted by subset of ranks", "The actor died unexpectedly before",
    "MPI_ABORT was invoked",
)  # fmt: skip
"""The lines after one of these belong to it (a traceback, a table, a message of several lines)."""

LINE_ANCHORS: tuple[str, ...] = (
    "[rank", "Error: ", "Exception: ", " closing signal SIG", "via signal SIG", "failed (exitcode:",
    "forcefully exiting via", "exits with return code", "Killing subprocess", "Child process with PID",
    "terminated with signal", "terminated with exit code", "taking the entire process down",
    "Terminating the process after attempting to dump", "with environments", "initialized with environment",
    "oom_kill event", "oom-kill event", "OOMKilled", "Exceeded step memory limit", "Killed process", "Kill process",
    ": segfault at", "general protection fault", "exited on signal", "Exited with exit code",
    "Killed", "Terminated", ": Out Of Memory", "Aborted", "Segmentation fault", "Bus error",
    "core dumped", "py_callstack", "NCCL version ", "RCCL version", "HIP version", "ROCm version",
    "Exception ignored in", "Exception in thread", "Exception in callback", "Logging error",
    "exception was never retrieved", "srun: Job step aborted", "srun: Terminating", "slurmstepd: error", "srun: error",
    ": error: ", ": can't open file", ": command not found", "executable file not found", ": Permission denied",
    ": No such file or directory", ": cannot execute", "died with <Signals.", "died with unknown signal",
    "returned non-zero exit status", "OpType=", "NumelIn=", "NumelOut=", "Timeout(ms)=", "before timing out",
    "detected by watchdog", "last completed", "Exited with signal termination", "# Ended (code ", '  File "',
    "with exit code", "exited with code", " died, exit code: ", "eturn code", "xit code: ", "ob failed: exit",
    "non-zero status", "status failed cmd", "During handling of the above", "exception was the direct cause",
)  # fmt: skip
"""Lines that say something alone."""
