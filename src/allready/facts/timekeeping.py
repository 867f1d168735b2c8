"""Who keeps this machine's clock: the kernel's word, and the programs that could report it."""

from typing import Any

from allready.errors import FactUnavailable
from allready.facts.host import Host, names_in, text_of
from allready.model import TimeFacts

SERVICES = frozenset({
    "chronyd", "ntpd", "openntpd", "ntpd-rs", "ntimed", "sntp", "systemd-timesyn", "ptp4l", "phc2sys", "timemaster",
    "vmtoolsd", "VBoxService",
})  # fmt: skip
"""As the kernel cuts names, to 15 characters."""
CLOCK_S = 1.0


def collect_time(host: Host) -> TimeFacts:
    """What adjtimex(2) says, and which services run.

    Raises:
        FactUnavailable: the kernel is not to be asked here.
    """
    found: Any = host.probe("clock", timeout_s=CLOCK_S)
    if not isinstance(found, dict) or not isinstance(found.get("is_synchronized"), bool):
        raise FactUnavailable("the state of the clock is not readable")
    pids = (name for name in names_in(host, "/proc") if name.isdecimal())
    names = {text_of(host, f"/proc/{pid}/comm").strip() for pid in pids}
    return TimeFacts(is_synchronized=found["is_synchronized"], services=tuple(sorted(names & SERVICES)))
