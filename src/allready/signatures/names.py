"""Signatures that their readers treat in a way of their own, and the judge as well."""

RENDEZVOUS = "elastic.rendezvous_complete"
STALLED = "launcher.horovod_stalled"
OF_RESULTS = "nccl.result_"
"""How the names of those begin that tell a code which NCCL returned."""

LAUNCHERS = frozenset({"elastic", "launcher"})
"""Families of lines that a launcher writes."""

OF_LIBRARY = frozenset({"nccl", "kernel", "ras"})
"""Families of lines that stand in logs without output of the program."""
