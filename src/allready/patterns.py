"""Regular expressions that most inputs never need: compiled at their first use, once.

Modules with dozens of them keep them as text: compiling what a short run never asks for took a twelfth of its CPU time.
"""

import functools
import re


@functools.cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern of this program (never of an input: they are kept as long as the process lives)."""
    return re.compile(pattern, flags)
