"""Who a process is: command, user, start time, from /proc."""

from datetime import UTC, datetime

from allready.errors import FactUnavailable
from allready.facts.env import redact
from allready.facts.host import Host

MAX_COMMAND_CHARS = 200
CLOCK_TICKS_PER_S = 100  # USER_HZ, the same on every architecture that Linux runs GPUs on
DIRECTORY_TIMEOUT_S = 1.0


def command_of(host: Host, pid: int) -> str | None:
    """The command line (at most 200 characters, secrets removed), or "[name]" where there is none."""
    try:
        words = host.read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
        if not words:
            words = f"[{host.read(f'/proc/{pid}/comm').strip()}]"
    except FactUnavailable:
        return None
    return redact("", " ".join(words.split()))[:MAX_COMMAND_CHARS]


def user_of(host: Host, pid: int) -> str | None:
    """Name of the user that a process runs as."""
    try:
        status = host.read(f"/proc/{pid}/status")
    except FactUnavailable:
        return None
    line = next((row for row in status.splitlines() if row.startswith("Uid:")), "")
    uids = line.split()[1:2]
    return user_name(host, uids[0]) if uids else None


def user_name(host: Host, uid: str) -> str:
    """The name of a user id: /etc/passwd, else the directory service, else "uid N"."""
    try:
        for line in host.read("/etc/passwd").splitlines():
            row = line.split(":")
            if len(row) > 2 and row[2] == uid:
                return row[0]
        return str(host.probe(f"user:{uid}", timeout_s=DIRECTORY_TIMEOUT_S))
    except FactUnavailable:
        return f"uid {uid}"


def started_at(host: Host, pid: int) -> str | None:
    """When a process started, ISO-8601 in UTC, to the second."""
    try:
        # The command stands in brackets and may itself contain blanks and brackets.
        after = host.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        boot = next(line for line in host.read("/proc/stat").splitlines() if line.startswith("btime "))
        seconds = int(boot.split()[1]) + int(after[19]) / CLOCK_TICKS_PER_S
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (FactUnavailable, StopIteration, IndexError, ValueError, OverflowError, OSError):
        return None
