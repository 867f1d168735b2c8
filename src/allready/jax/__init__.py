"""For JAX programs: a start that names who is missing, barriers that name who did not come, devices that are alive.

docs/runtime.md#jax.  Nothing here imports JAX before it is called.
"""

from allready.jax.barriers import barrier
from allready.jax.liveness import ProcessesLost, live_devices
from allready.jax.starting import StartFailed, initialize

__all__ = ["ProcessesLost", "StartFailed", "barrier", "initialize", "live_devices"]
