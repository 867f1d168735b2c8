"""torchft: our verdict on a failure within a replica group is why its step is dropped."""

import contextlib
from collections.abc import Iterator
from typing import Any

from allready.integrations.trainers import agreed_failures
from allready.runtime.calls import safe_barrier
from allready.runtime.failures import CollectiveFailed


@contextlib.contextmanager
def torchft_failures(manager: Any, group: Any = None) -> Iterator[None]:
    """Around forward and backward of a step of a replica group, whose ranks all do it or all fail alike.

    A failure is reported to torchft's manager, so that `should_commit` drops the step on all ranks of the replica
    group, and torchft's log has who is at fault.  Then call `allready.recover`, or let the process end.

    Args:
        manager: a `torchft.Manager`.
        group: its process group; it is aborted, so that ranks of other replica groups that wait in it for this rank
            drop the step at once and not after torchft's timeout.

    Raises:
        CollectiveFailed: on every surviving rank of the replica group, in place of any other exception.
    """
    try:
        with agreed_failures():
            yield
            safe_barrier()
    except CollectiveFailed as failure:
        manager.report_error(failure)
        if group is not None:
            group.abort()
        raise
