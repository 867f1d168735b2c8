"""What an agent gives a rank so that its beacon runs."""

import os
from collections.abc import Mapping
from pathlib import Path

from allready.live import beacon
from allready.live.beacon.names import PARENT_PID, RANK_DIR, RUN_DIR
from allready.live.run_paths import rank_dir
from allready.names import BUFFER_SIZE_VARIABLES

WRAPPER = str(Path(beacon.__file__).with_name("main.py"))
"""The program of a rank.  By its path: with -m Python would import its own modules from the working directory first."""
BUFFER_ENTRIES = 512
"""A ring costs about 10 us per entry to read, and is read every two to eight seconds."""

_NEW_NAMES_SINCE = (2, 8)


def rank_environment(run_dir: Path, rank: int, *, parent_pid: int | None = None) -> dict[str, str]:
    """Variables for one rank.  The rank dies with the *thread* that starts it, as the kernel counts parents."""
    return {
        RUN_DIR: str(run_dir),
        RANK_DIR: str(rank_dir(run_dir, rank)),
        PARENT_PID: str(parent_pid if parent_pid is not None else os.getpid()),
    }


def beacon_environment(environ: Mapping[str, str], *, torch_version: str | None = None) -> dict[str, str]:
    """The variable that makes the flight recorder useful, if it is missing in `environ`; what the user set stands.

    One name only: newer torch writes a warning into the job's output when it sees the older one.
    """
    if any(name in environ for name in BUFFER_SIZE_VARIABLES):
        return {}
    return {BUFFER_SIZE_VARIABLES[_is_old(torch_version)]: str(BUFFER_ENTRIES)}


def installed_torch() -> str | None:
    """The version of the torch that this interpreter would import, without importing it; None where there is none."""
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def _is_old(version: str | None) -> bool:
    parts = (version or "").split(".")[:2]
    return len(parts) == 2 and all(p.isdigit() for p in parts) and tuple(map(int, parts)) < _NEW_NAMES_SINCE
