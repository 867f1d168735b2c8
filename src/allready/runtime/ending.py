"""The end of the default group by the script, by torch's `destroy_process_group`, of which torch gives no word.

A script whose group torch has made ends it by torch's means too: then this process leaves the job.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

_UPDATE = "_update_default_pg"
"""Function of torch's through which the default group comes and goes."""


class GroupEnding:
    """From `begin` to `end`; with a torch that has no such function it tells nothing."""

    def __init__(self) -> None:
        self._torchs: Any = None
        self._own: Any = None
        self._is_ours = False

    def begin(self, then: Callable[[], object]) -> None:
        """From now on `then` is called once the script has ended the group."""
        from torch.distributed import distributed_c10d

        self.end()
        torchs, process = getattr(distributed_c10d, _UPDATE, None), os.getpid()
        if torchs is None:
            return

        def update(group: Any) -> None:
            torchs(group)
            if group is None and not self._is_ours and os.getpid() == process:  # a forked child is no rank
                then()

        self._torchs, self._own = torchs, update
        setattr(distributed_c10d, _UPDATE, update)

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """Inside it is the library that ends the group."""
        self._is_ours = True
        try:
            yield
        finally:
            self._is_ours = False

    def end(self) -> None:
        """torch's own again."""
        from torch.distributed import distributed_c10d

        if self._own is not None and getattr(distributed_c10d, _UPDATE, None) is self._own:
            setattr(distributed_c10d, _UPDATE, self._torchs)
        self._torchs = self._own = None
