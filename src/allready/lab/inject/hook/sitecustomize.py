"""Python's own start-up hook, on PYTHONPATH of what `allready lab run` starts: the fault injector comes in here.

The user's or the system's `sitecustomize`, which this file hides, is run first, as it would have been.
"""

import os
import sys
from pathlib import Path


def _run_the_hidden_one() -> None:
    import importlib.machinery
    import importlib.util

    own = Path(__file__).resolve().parent
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


try:
    _run_the_hidden_one()
finally:
    if os.environ.get("ALLREADY_LAB_INJECT"):
        import importlib

        importlib.import_module("allready_lab_inject").activate()
