"""Who a process is: command, user, start time, from /proc."""

from datetime import UTC, datetime

from allready.errors import FactUnavailable
from allready.facts.host import Host, text_of
from allready.proc.clocks import TICKS_PER_S
from allready.proc.process import parse_command, parse_stat, status_field
from allready.redaction import redact

MAX_COMMAND_CHARS = 200
DIRECTORY_TIMEOUT_S = 1.0
INITS = frozenset({"systemd", "init", "tini", "tini-static", "dumb-init", "docker-init", "catatonit", "s6-svscan"})
"""Programs that take in processes whose parent has ended."""


def command_of(host: Host, pid: int) -> str | None:
    """The command line (at most 200 characters, secrets removed), or "[name]" where there is none."""
    command = parse_command(text_of(host, f"/proc/{pid}/cmdline"), text_of(host, f"/proc/{pid}/comm"))
    return redact("", command)[:MAX_COMMAND_CHARS] or None


def user_of(host: Host, pid: int) -> str | None:
    """Name of the user that a process runs as."""
    uids = status_field(text_of(host, f"/proc/{pid}/status"), "Uid").split()
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
        stat = parse_stat(pid, host.read(f"/proc/{pid}/stat"))
        boot = next(line for line in host.read("/proc/stat").splitlines() if line.startswith("btime "))
        if stat is None:
            return None
        seconds = int(boot.split()[1]) + stat.start_ticks / TICKS_PER_S
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (FactUnavailable, StopIteration, IndexError, ValueError, OverflowError, OSError):
        return None
