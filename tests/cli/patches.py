"""Faults of our own program, put into a real process from outside: a sitecustomize on PYTHONPATH."""

import os
from pathlib import Path

HOLD_FACTS = """
import time
import allready.preflight.check.context as context
genuine = context.collect
def collect(*args, **kwargs):
    time.sleep(30)
    return genuine(*args, **kwargs)
context.collect = collect
"""

HOLD_REACH = """
import asyncio
import allready.preflight.check.follow as follow
async def take_part(*args, **kwargs):
    print("held in reach", file=sys.stderr, flush=True)
    await asyncio.sleep(30)
follow.reach.take_part = take_part
"""

HOLD_IMPORT = """
import time
time.sleep(60)
"""

HOLD_START = """
import time
import allready.launch.layout as layout
def lay_out(*args, **kwargs):
    print("held at the start", file=sys.stderr, flush=True)
    time.sleep(30)
layout.lay_out = lay_out
"""

HOLD_REPORT = """
import time
import allready.report.html as html
genuine = html.render
def render(*args, **kwargs):
    print("held in the report", file=sys.stderr, flush=True)
    time.sleep(1)
    return genuine(*args, **kwargs)
html.render = render
"""

HOLD_EXIT = """
import atexit, time
def hold():
    print("held at the exit", file=sys.stderr, flush=True)
    time.sleep(0.5)
atexit.register(hold)
"""


def patched(folder: Path, code: str, *, where: str = "check") -> dict[str, str]:
    """The environment that runs `code` at the start of the agents ("check", "run") or of a check's ranks ("rank").

    A fault in the code itself ends the process with a traceback: a patch that does not fit must not go unnoticed.
    """
    site = folder / f"site-{abs(hash(code))}"
    site.mkdir(exist_ok=True)
    chosen = "any('collectives.' in a for a in sys.orig_argv)" if where == "rank" else f"{where!r} in sys.orig_argv"
    body = "\n".join(f"        {line}" for line in code.strip().splitlines())
    (site / "sitecustomize.py").write_text(
        "import os, sys, traceback\n\ndef patch():\n    try:\n" + body + "\n    except BaseException:\n"
        f"        traceback.print_exc()\n        os._exit(99)\n\nif {chosen}:\n    patch()\n"
    )
    return {"PYTHONPATH": os.pathsep.join(p for p in (str(site), os.environ.get("PYTHONPATH")) if p)}
