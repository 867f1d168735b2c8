"""Steps counted as calls of one function that the user names, `MODULE:FUNCTION`, also of the script itself.

By the interpreter's profiler hook, because a function of `__main__` cannot be patched before it exists; it slows the
rank's Python code down by some percent.
"""

import sys
from collections.abc import Callable
from types import FrameType


def install(name: str, on_call: Callable[[], None]) -> None:
    """Call `on_call` in the main thread whenever `MODULE:FUNCTION` (qualified: `Trainer.training_step`) returns."""
    module, _, function = name.partition(":")
    short = function.rpartition(".")[2]

    def count_calls(frame: FrameType, event: str, _arg: object) -> None:
        if event != "return" or frame.f_code.co_name != short:
            return
        if frame.f_code.co_qualname == function and frame.f_globals.get("__name__") == module:
            on_call()

    sys.setprofile(count_calls)
