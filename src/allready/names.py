"""Names on which two parts of the package agree that may not import each other: one writes or sets what the other
reads.  Those of known log lines are `signatures.names`."""

REDACTED = "(redacted)"
"""What is left of a secret."""
TOKEN_VARIABLE = "ALLREADY_TOKEN"  # noqa: S105 - its name
NO_NATIVE_VARIABLE = "ALLREADY_NO_NATIVE"
"""Switches the compiled parts off."""
BUFFER_SIZE_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""The flight recorder's number of entries, as torch from 2.8 and as older torch calls it."""
BONDS_FOLDER = "/proc/net/bonding"
GLOO = "gloo"
"""torch's name of the backend."""

ARGUMENTS = "arguments"
"""What the beacon adds to a dump of torch's recorder: rows of group, number, operation, root (a global rank), elements
for each member, elements from each member.  Beside the entries of a JSON dump; alone in a pickle that follows the
dump's."""
TAKEN = "taken_ns"
"""Beside the entries of a JSON dump: when it was read, by the clock that the entries' times are of."""
MEMBERS = "members"
"""Where `ARGUMENTS` is: group -> its global ranks in the group's order."""
EXCHANGES = "exchanges"
"""Where `ARGUMENTS` is: the beacon's rows of sends and receives, see its `ExchangeNotes.noted`."""
GROUP_COUNTS = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
"""torch's, of a group's state in a dump."""
TRACEBACK_FRAME = 'File "'
"""What a frame begins with in Python's tracebacks."""
