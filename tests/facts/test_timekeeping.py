"""Who keeps the clock: the kernel of this machine, and made-up lists of processes."""

import re
import shutil
import subprocess

import pytest

from allready.errors import FactUnavailable
from allready.facts.live import LiveHost
from allready.facts.system import collect_time
from tests.facts.saved_host import SavedHost


def test_the_kernel_of_this_machine_answers_without_root() -> None:
    found = LiveHost().probe("clock", timeout_s=1)
    assert set(found) == {"is_synchronized"}
    if shutil.which("timedatectl"):
        shown = subprocess.run(
            ["timedatectl", "show", "-p", "NTPSynchronized"], capture_output=True, text=True, timeout=20
        )
        if match := re.match(r"NTPSynchronized=(yes|no)", shown.stdout):
            assert found["is_synchronized"] == (match[1] == "yes")


def test_services_are_known_by_their_names() -> None:
    names = {"1": "systemd", "40": "systemd-timesyn", "41": "python", "42": "chronyd"}
    host = SavedHost(
        {
            "probes": {"clock": {"is_synchronized": False}},
            "dirs": {"/proc": [*names, "self"]},
            "files": {f"/proc/{pid}/comm": f"{name}\n" for pid, name in names.items()},
        }
    )
    found = collect_time(host)
    assert (found.is_synchronized, found.services) == (False, ("chronyd", "systemd-timesyn"))


def test_where_the_kernel_may_not_be_asked_the_fact_is_missing() -> None:
    answers: tuple[object, ...] = ({"unavailable": "EPERM"}, {}, [], {"is_synchronized": 3})
    for answer in answers:
        with pytest.raises(FactUnavailable):
            collect_time(SavedHost({"probes": {"clock": answer}}))
