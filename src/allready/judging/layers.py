"""The layers of explanation, in causal order: what lies in an earlier layer explains what lies in a later one."""

from enum import StrEnum


class Layer(StrEnum):
    """Where in the chain of causes a finding lies.  The order of the members is the order of causes."""

    MACHINE = "machine"
    """A machine, a GPU or its memory failed, or was taken away from the job (preemption, eviction)."""
    NAME = "name"
    """An address is wrong in itself: it does not resolve, is loopback, or belongs to the wrong interface."""
    PORT = "port"
    """The port at which the nodes meet is taken, cannot be opened, or belongs to another service."""
    LAUNCH = "launch"
    """The processes could not be started as asked, or were given settings that contradict each other."""
    ENVIRONMENT = "environment"
    """A driver, library, device or limit that a process needed is missing or does not fit, and the process says so."""
    PROCESS_END = "process_end"
    """A process ended for a reason of its own: an exception, a signal, no memory."""
    DESYNC = "desync"
    """Ranks made different calls, or the same calls with different arguments or in another order."""
    LINK = "link"
    """A path between nodes carries nothing while the job runs, as measured on it."""
    STALL = "stall"
    """A rank does not come to the operation that the others wait in: stopped, blocked, busy."""
    PATH = "path"
    """Packets do not arrive at the start: refused, filtered, no route, one direction only, only small ones."""
    PEER_LOST = "peer_lost"
    """A service of the job reports a rank as lost or silent."""
    ABSENCE = "absence"
    """A node or rank never came."""
    NETWORK = "network"
    """A library or the kernel reports a failed connection, interface or transfer."""
    SILENCE = "silence"
    """A rank is missing by what it did not write or do, where no record says how far it came."""
    EXIT = "exit"
    """A process ended, and its exit code or its environment is all that is known of why."""
    READINESS = "readiness"
    """What nodes have differs, or does not suit the job; found by comparing, before it hurts."""
    STAGE = "stage"
    """A stage of a check failed or stopped, with the ranks that were not where the others were."""
    TRANSPORT = "transport"
    """All ranks that are seen are inside an operation, and it does not end."""
    PACE = "pace"
    """The job works, slowly."""
    LAUNCHER_EXIT = "launcher_exit"
    """A launcher reports which process exited, and not why."""
    VICTIM = "victim"
    """A rank reports that it waited until a timeout."""
    CONSEQUENCE = "consequence"
    """An error that another failure brought about."""
    LAUNCHER = "launcher"
    """A launcher reports that the job failed."""
    ENDING = "ending"
    """How the job was ended in the end: a time limit, an abort of torch's monitor."""
    ECHO = "echo"
    """Lines that accuse no rank: echoes, teardown, noise."""
    FALLBACK = "fallback"
    """Something failed, and nothing else says what; reported only where no other layer has an error."""

    @property
    def position(self) -> int:
        """0 for the deepest cause."""
        return _POSITIONS[self]

    def explains(self, other: "Layer") -> bool:
        """Whether it lies deeper in the chain of causes."""
        return self.position < other.position


_POSITIONS = {layer: position for position, layer in enumerate(Layer)}
