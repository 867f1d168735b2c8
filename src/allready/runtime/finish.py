"""The end of a job whose work is done."""

import logging

from allready.runtime.calls import safe_barrier
from allready.runtime.durations import Duration
from allready.runtime.failures import CollectiveFailed
from allready.runtime.limits import PHASES
from allready.runtime.recovery import destroy_process_group
from allready.runtime.session import has_left, is_before_adoption
from allready.runtime.starting import joined

log = logging.getLogger(__name__)


def finish(*, timeout: Duration | None = None) -> CollectiveFailed | None:
    """Wait for the other ranks a last time and leave the job; call it once all work is saved.  Collective.

    Does nothing where this process has left before.

    A rank that dies, raises or does not come here any more costs the others nothing: the failure is logged and
    returned, never raised, and this process ends as one that succeeded.

    Args:
        timeout: for all ranks to come, by default that of the phase "small" (5 min).
    """
    if has_left() and not is_before_adoption():
        return None
    longest = PHASES["small"] if timeout is None else timeout
    with joined(longest).shut():  # a rank that joins now would come for nothing
        failure = safe_barrier(timeout=longest, on_failure="return")
    if failure is not None:
        log.warning("not all ranks came to the end of the job, whose work is done here: %s", failure)
    try:
        destroy_process_group()
    except Exception:
        log.exception("torch's group was not given back")
    return failure
