"""Start the children that import torch and JAX: before anything else, for the imports take most of the time.

Imports nothing but the standard library, and of that little.
"""

import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

MODULES = ("torch", "jax")
ACCELERATORS = ("nvidia", "kfd", "accel", "vfio", "dxg", "neuron", "dri", "hl")
"""Beginnings of what GPUs and other accelerators have in /dev."""
_KIND = "import"


class StartedImport(NamedTuple):
    """A child that imports `name`, since `began_s` on the monotonic clock, and says then which devices it has."""

    name: str
    devices: bool
    child: "subprocess.Popen[bytes]"
    began_s: float


def questions(dev: Collection[str], *, use_gpus: bool) -> Iterator[str]:
    """The probes of this machine about torch and JAX.

    Args:
        dev: the names in /dev.
        use_gpus: ask both for their devices, which takes memory of GPUs.  Without it only JAX is asked, and only on a
            machine that has none.
    """
    has_none = bool(dev) and not any(name.startswith(ACCELERATORS) for name in dev)
    for name in MODULES:
        suffix = ":devices" if use_gpus else ":cpu" if name == "jax" and has_none else ""
        yield f"{_KIND}:{name}{suffix}"


def begin(question: str, environ: Mapping[str, str], *, limit_s: float) -> StartedImport:
    """The child that answers one of the questions; the caller has to end it.

    Args:
        limit_s: by itself it ends soon after that.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    _, name, *asked = question.split(":")
    # Of a GPU's memory JAX takes three quarters otherwise.
    more = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **({"JAX_PLATFORMS": "cpu"} if "cpu" in asked else {})}
    # -P: a torch.py in the folder of the user is not what a job imports.
    argv = [sys.executable, "-P", "-m", "allready.facts.import_child", name, f"{limit_s:.2f}", str(os.getpid())]
    child = subprocess.Popen(
        [*argv, "devices"] if asked else argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**environ, **more},
    )
    return StartedImport(name, bool(asked), child, time.monotonic())
