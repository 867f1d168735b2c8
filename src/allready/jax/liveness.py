"""The devices of the processes that are alive, where JAX has that."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from allready.errors import AllreadyError, UsageError
from allready.jax.presence import Presence

log = logging.getLogger(__name__)


class ProcessesLost(AllreadyError):  # noqa: N818 - an outcome
    """Processes ended inside of the block, so it counts on none; the same on every one that is alive.

    `processes`: their numbers; `devices`: theirs.
    """

    def __init__(self, processes: tuple[int, ...], devices: tuple[Any, ...]) -> None:
        noun = "process" if len(processes) == 1 else "processes"
        super().__init__(f"{noun} {', '.join(map(str, processes))} ended")
        self.processes, self.devices = processes, devices


@contextlib.contextmanager
def live_devices(devices: Sequence[Any] | None = None) -> Iterator[list[Any]]:
    """The devices that are alive, the same on every process; the block inside succeeds on all of them or on none.

    JAX's `live_devices`, which waits for every living process to come; without `devices`, all.

    Raises:
        ProcessesLost: processes ended inside.
        UsageError: JAX has no such thing, or was not initialized with `recoverable=True`.
    """
    import jax

    Presence.current()
    if not getattr(jax.config, "jax_enable_recoverability", False):
        raise UsageError("live_devices needs allready.jax.initialize(recoverable=True)")
    try:
        from jax.experimental.multihost_utils import ProcessFailureError
        from jax.experimental.multihost_utils import live_devices as alive_in
    except ImportError:
        raise UsageError("JAX {version} has no live_devices", version=jax.__version__) from None
    asked = list(jax.devices() if devices is None else devices)
    try:
        with alive_in(asked) as alive:
            _log_missing({d.process_index for d in asked} - {d.process_index for d in alive})
            yield list(alive)
    except ProcessFailureError as error:
        lost = tuple(sorted(error.failed_devices, key=lambda device: device.id))
        raise ProcessesLost(tuple(sorted({d.process_index for d in lost})), lost) from error


_logged: set[int] = set()


def _log_missing(processes: set[int]) -> None:
    new = sorted(processes - _logged)
    if new:
        log.warning("not alive any more: process %s", ", ".join(map(str, new)))
    _logged.update(new)
