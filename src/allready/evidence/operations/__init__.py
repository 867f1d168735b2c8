"""The operations of all ranks, from COLL lines: joined by communicator, counted by rank, compared one by one."""

from allready.evidence.operations.join import OperationsJoin, operations_progress

__all__ = ["OperationsJoin", "operations_progress"]
