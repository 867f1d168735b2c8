"""The part of the fault laboratory that lives in a rank.  Standard library only: the job may have any Python packages.

`activate` is called by sitecustomize before the job's first line.  Nothing happens in processes that are no victim.
"""

import json
import os
import sys
from pathlib import Path

PLAN = "ALLREADY_LAB_INJECT"
OWNER = "ALLREADY_LAB_INJECT_OWNER"
"""Process that acts as the rank: its children (DataLoader workers, compilers) inherit RANK, and must not act."""

RANK_VARIABLES = ("RANK", "JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def rank_of_environment() -> int | None:
    """This process's rank as a launcher set it; None when it did not."""
    for name in RANK_VARIABLES:
        if (text := os.environ.get(name, "")).isdecimal():
            return int(text)
    return None


def activate() -> None:
    """Read the plan and set the injector up, where this process is, or may become, a victim.

    A mistake of the injector must not be taken for a fault of the job: it is written beside the truth, loudly.
    """
    rank = rank_of_environment()
    if rank is not None:
        owner = os.environ.get(OWNER)
        if owner not in {None, str(os.getpid())}:
            return
        os.environ[OWNER] = str(os.getpid())
    path = Path(os.environ[PLAN])
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        faults = [f for f in plan["faults"] if f["rank"] == "all" or rank is None or f["rank"] == rank]
        if not faults:
            return
        from .engine import Engine

        Engine(plan, faults, rank).install()
    except Exception as error:  # noqa: BLE001 - written beside the truth; the job itself goes on unharmed
        text = f"allready lab: the fault injector failed in process {os.getpid()}: {error!r}\n"
        sys.stderr.write(text)
        (path.parent / f"problem-{os.getpid()}.txt").write_text(text, encoding="utf-8")
