"""Lines of torch's watchdog that mean the same in the dialects of its NCCL backends.

That of releases before torch 2.15 names the operation with its number and size; nccl2, the default since, names the
group alone.
"""

TIMEOUTS = frozenset({"torch.watchdog_timeout", "torch.operation_timeout"})
"""A rank waited in vain."""
ERRORS = frozenset({"torch.async_exception", "torch.communicator_error"})
"""A communicator of NCCL failed under an operation."""
