"""Regular expressions that most inputs never need: compiled at their first use, once.

Modules with dozens of them keep them as text: compiling what a short run never asks for took a twelfth of its CPU time.
"""

import functools
import re
from collections.abc import Iterable


@functools.cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern of this program (never of an input: they are kept as long as the process lives)."""
    return re.compile(pattern, flags)


def has_one(hints: Iterable[str], text: str) -> bool:
    """Whether one of these stands in the text: what it costs is asked of every text before a pattern is tried."""
    for hint in hints:  # noqa: SIM110 - twice as fast as `any`
        if hint in text:
            return True
    return False
