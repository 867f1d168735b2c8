"""Python's search for reference cycles, tuned in one place.

Our processes make hundreds of thousands of objects that stay, and hardly any cycles; each search visits all of them.
What that costs (2-CPU machine, Python 3.11): the last search of `diagnose` after 1,024 logs 0.1 s; one search in a
node's agent with torch and the rules loaded 50 ms of a CPU that ranks may need.
"""

import contextlib
import gc
from collections.abc import Iterator

_SELDOM = 250_000  # objects that come between two searches; by default 700. A short `diagnose` makes 100,000


def forget_existing() -> None:
    """From now on no search visits the objects that exist: they stay, or the process ends soon."""
    gc.freeze()


def search_seldom() -> None:
    """For the rest of this process, where objects come by the thousand and hardly any is garbage."""
    gc.freeze()
    gc.set_threshold(_SELDOM, 10, 100)


@contextlib.contextmanager
def searched_seldom() -> Iterator[None]:
    """The same while a block runs, without giving up on what exists."""
    before = gc.get_threshold()
    gc.set_threshold(_SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
