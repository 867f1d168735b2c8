"""What this machine can show of the suite, and why not the rest."""

import functools
import importlib.util
import os
import shutil
from pathlib import Path

from allready.lab.lab import probe

OTHER_LIBRARIES = "ALLREADY_LAB_OTHER_LIBRARIES"
"""An absolute path, made by `pip install --target FOLDER --no-deps jax==... jaxlib==...` (or torch), of another version
than the job's."""


@functools.cache
def missing(need: str) -> str | None:
    """Why this machine lacks something a row needs; None when it has it."""
    if need == "filters":
        return probe(packet_filters=True)
    if need in {"jax", "torch"}:
        return None if importlib.util.find_spec(need) else f"{need} is not installed"
    if need in {"memory", "cpu"}:
        return _no_cgroup(need)
    if need == "ip":
        return None if shutil.which("ip") else "ip (iproute2) is not installed"
    if need in {"other torch", "other jax"}:
        library = need.removeprefix("other ")
        folder = Path(os.environ.get(OTHER_LIBRARIES, ""))
        is_there = folder.is_absolute() and (folder / library).is_dir()
        return None if is_there else f"{OTHER_LIBRARIES} names no folder with another version of {library}"
    if need == "prlimit":
        return None if shutil.which("prlimit") else "prlimit (util-linux) is not installed"
    return NEVER[need]


NEVER = {
    "gpu": "needs a GPU: see the results on GPU machines",
    "delay": "needs delays on a link: the lab has none (netem is missing in many kernels)",
    "clock": "needs another wall clock per node: time namespaces of Linux do not cover it",
}


def _no_cgroup(controller: str) -> str | None:
    """Whether this process may make a control group: by making an empty one and removing it."""
    root = Path("/sys/fs/cgroup")
    base = root if (root / "cgroup.controllers").exists() else root / controller
    if base == root and controller not in (root / "cgroup.controllers").read_text(encoding="ascii").split():
        return f"no {controller} controller"
    trial = base / "allready-lab-trial"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        return f"control groups cannot be made here: {error.strerror}"
    return None
