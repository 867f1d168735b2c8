"""The libraries' words for a process that suffers from another one's end; of lines that are known, the tables say it.

Words of an exception may be of any library and version, and be cut, so that no table has all of them.
"""

from allready.patterns import compiled

_GAP = ".{0,200}?"
"""Between two words of one message."""
_CLOSED = r"(?:closed|reset) by (?:remote )?peer"
_ENDED = rf"{_CLOSED}|connection (?:was )?(?:likely )?(?:closed|reset)|broken pipe|remote process (?:has )?exited"
_LOST = (
    rf"{_ENDED}|connection aborted|"
    r"software caused connection abort|remote process (?:has )?exit|ncclRemoteError|socket recv failed|socketProgress|"
    r"recvValue failed|(?:send|recv)Bytes failed|failed to recv|connection error|"
    rf"communicator was aborted|entered an error state|NET/IB{_GAP}(?:error|timeout)|transport retry|"
    rf"tasks? {_GAP}(?:died|unhealthy)|another (?:task|rank)|heartbeat|preempted|coordination service|"
    rf"store {_GAP}(?:closed|shut ?down)|monitoredBarrier"
)

_WAITED = r"connection refused|timed?[ -]?out|DEADLINE_EXCEEDED"


def is_closed_by_peer(words: str) -> bool:
    """Whether another process closed the connection, as its end does; a path that is gone closes nothing."""
    return compiled(f"(?i){_CLOSED}").search(words) is not None


def has_lost_connection(words: str) -> bool:
    """Whether the connection to another process ended, mostly with that process; who gave up first is not known."""
    return compiled(f"(?i){_ENDED}").search(words) is not None


def has_timed_out(words: str) -> bool:
    """Whether the process waited for others until a timeout."""
    return compiled("(?i)timed out|timeout").search(words) is not None


def has_lost_or_missed_peer(words: str) -> bool:
    """Whether another process is gone or has given up, or was waited for until a timeout and may never have come."""
    return compiled(f"(?i){_LOST}|{_WAITED}").search(words) is not None
